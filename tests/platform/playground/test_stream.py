"""The playground over server-sent events: the same frames, for networks that break websockets."""

import json
import uuid

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient, Client

from tests import committed
from tests.gateway_bench import instance, route
from tests.websockets import socket_of

team, other_team = committed.team, committed.other_team
URL = "/api/v1/playground/stream"


@pytest.fixture
async def platform(bench, engines, team, settings):
    settings.GATEWAY_PORT = int(bench.url.rpartition(":")[2])
    engine = instance(engines[0], str(uuid.uuid4()))
    await bench.publish(route("m", engine, team=str(team.pk), deployment=str(uuid.uuid4())))
    return bench


def body(**fields):
    message = {"chat": str(uuid.uuid4()), "lane": "a", "model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return message | fields


@sync_to_async
def signed_in(user):
    client = AsyncClient()
    client.force_login(user)
    return client


async def frames_of(response):
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream"
    raw = b"".join([part async for part in response.streaming_content]).decode()
    events = [event.split("\n") for event in raw.split("\n\n") if event]
    frames = [json.loads(lines[1].removeprefix("data: ")) for lines in events]
    assert [lines[0] for lines in events] == [f"id: {frame['seq']}" for frame in frames]
    return frames


async def test_case_50_same_content_as_over_the_websocket_and_resumable(platform, viewer):
    client = await signed_in(viewer)
    message = body()
    frames = await frames_of(await client.post(URL, message, content_type="application/json"))
    assert frames[0]["type"] == "started"
    assert frames[-1]["type"] == "done"
    assert len("".join(frame.get("text", "") for frame in frames).split()) == 20
    place = {"chat": message["chat"], "lane": "a"}
    assert await frames_of(await client.get(URL, place | {"after": 1})) == frames[1:]
    assert await frames_of(await client.get(URL, place, headers={"Last-Event-ID": "1"})) == frames[1:]
    socket = await socket_of(viewer, "/ws/chat")
    await socket.send({"type": "resume", **place, "after": 0})
    assert [await socket.receive() for _ in frames] == frames
    await socket.disconnect()


async def test_stop_without_a_websocket(platform, engines, viewer):
    engines[0].behaviour.tokens = 10_000
    engines[0].behaviour.interval = 0.01
    client = await signed_in(viewer)
    message = body()
    response = await client.post(URL, message, content_type="application/json")
    stop = {"chat": message["chat"], "lane": "a"}
    assert (await client.post("/api/v1/playground/stop", stop, content_type="application/json")).status_code == 202
    frames = await frames_of(response)
    assert (frames[-1]["type"], frames[-1]["finish_reason"]) == ("done", "cancelled")


@pytest.mark.django_db
def test_needs_a_session_with_a_token_or_a_key(team, viewer):
    client = Client(enforce_csrf_checks=True)
    assert client.post(URL, body(), content_type="application/json").status_code == 401
    client.force_login(viewer)
    refused = client.post(URL, body(), content_type="application/json")
    assert refused.status_code == 403
    assert "CSRF" in refused.json()["error"]["message"]
    client.get("/api/v1/auth/session")
    token = {"HTTP_X_CSRFTOKEN": client.cookies["csrftoken"].value}
    allowed = client.post(URL, {"chat": "c"}, content_type="application/json", **token)
    assert allowed.status_code == 400, "past the check, to what is wrong with the body"
    wrong = {"HTTP_AUTHORIZATION": "Bearer ts-wrong"}
    assert client.post(URL, body(), content_type="application/json", **wrong).status_code == 401


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("message", "says"), [({}, "chat"), (body(messages="x"), "messages"), (body(params={"top_k": 0.5}), "params.top_k")]
)
def test_bad_bodies_are_400_naming_the_field(viewer, message, says):
    client = Client()
    client.force_login(viewer)
    response = client.post(URL, message, content_type="application/json")
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]
    assert client.get(URL, {"chat": "c"}).status_code == 400
    assert client.delete(URL).status_code == 405
