"""/ws/chat through the real gateway to engines that only speak; frames in a real Redis."""

import uuid

import pytest
from asgiref.sync import sync_to_async
from tursiops.playground import answers, follow, runs
from tursiops.playground.answers import Answer
from tursiops.usage.models import UsageRecord
from tursiops.usage.services import take_in

from tests import committed
from tests.gateway_bench import instance, route, until
from tests.websockets import socket_of

team, other_team = committed.team, committed.other_team


@pytest.fixture
async def platform(bench, engines, team, settings):
    settings.GATEWAY_PORT = int(bench.url.rpartition(":")[2])
    engine = instance(engines[0], str(uuid.uuid4()))
    await bench.publish(route("m", engine, team=str(team.pk), deployment=str(uuid.uuid4())))
    engines[0].behaviour.interval = 0.01
    yield bench
    for _, task in list(runs._running.values()):
        task.cancel()


def start(**fields):
    message = {"type": "start", "chat": str(uuid.uuid4()), "lane": "a", "model": "m"}
    return message | {"messages": [{"role": "user", "content": "hello"}], "params": {"temperature": 0}} | fields


async def answer_of(socket, lane="a"):
    frames = [await socket.receive()]
    while frames[-1]["type"] not in ("done", "error"):
        frames.append(await socket.receive())
    return [frame for frame in frames if frame["lane"] == lane]


async def test_answer_streams_in_numbered_frames_and_is_billed_to_the_user(platform, engines, team, viewer):
    socket = await socket_of(viewer, "/ws/chat")
    message = start()
    await socket.send(message)
    frames = await answer_of(socket)
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert frames[0]["type"] == "started"
    assert frames[0]["model"] == "m"
    assert {frame["type"] for frame in frames[1:-1]} == {"delta"}
    assert len("".join(frame["text"] for frame in frames[1:-1]).split()) == 20
    assert len(frames) < 16, "one frame per ~50 ms, not per token"
    done = frames[-1]
    assert (done["type"], done["finish_reason"], done["usage"]["completion_tokens"]) == ("done", "length", 20)
    assert done["timing"]["ttft_ms"] > 0
    assert done["timing"]["tokens_per_s"] > 0
    assert {frame["chat"] for frame in frames} == {message["chat"]}
    assert engines[0].requests[0]["temperature"] == 0
    await platform.usage(1)
    await sync_to_async(take_in)()
    record = await UsageRecord.objects.aget(team=team)
    assert (record.request_id, record.user_id, record.team_id) == (frames[0]["request_id"], viewer.pk, team.pk)
    await socket.disconnect()


async def test_stop_ends_the_answer_and_the_engine(platform, engines, viewer):
    engines[0].behaviour.tokens = 10_000
    socket = await socket_of(viewer, "/ws/chat")
    message = start()
    await socket.send(message)
    assert (await socket.receive())["type"] == "started"
    await socket.receive()
    await socket.send({"type": "stop", "chat": message["chat"], "lane": "a"})
    frames = await answer_of(socket)
    assert (frames[-1]["type"], frames[-1]["finish_reason"]) == ("done", "cancelled")
    await until(lambda: engines[0].running == 0, 2)
    await socket.disconnect()


async def test_case_50_another_socket_resumes_from_the_last_number(platform, engines, viewer):
    """The page reconnects, perhaps to another web process: nothing is lost, nothing is doubled."""
    engines[0].behaviour.tokens = 60
    first = await socket_of(viewer, "/ws/chat")
    message = start()
    await first.send(message)
    seen = [await first.receive() for _ in range(3)]
    await first.disconnect()
    second = await socket_of(viewer, "/ws/chat")
    await second.send({"type": "resume", "chat": message["chat"], "lane": "a", "after": seen[-1]["seq"]})
    seen += await answer_of(second)
    assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1))
    assert len("".join(frame.get("text", "") for frame in seen).split()) == 60
    await second.send({"type": "resume", "chat": message["chat"], "lane": "a", "after": 0})
    assert await answer_of(second) == seen
    await second.disconnect()


async def test_case_50_answer_of_a_dead_process_ends_in_an_error_for_all(platform, viewer, monkeypatch):
    monkeypatch.setattr(follow, "_WAIT_MS", 100)
    answer = Answer(str(viewer.pk), "c", "a")
    assert await answers.claim(answer, "a run that dies")
    await answers.append(answer, answer.frame("started", 1, request_id="x", model="m"))
    await answers.release(answer)  # as the end of its lease does
    for _ in range(2):
        frames = [frame async for frame in follow.follow(answer, 0)]
        assert [(frame["seq"], frame["type"]) for frame in frames] == [(1, "started"), (2, "error")]
        assert frames[-1]["code"] == "interrupted"


async def test_stop_reaches_the_process_that_writes(platform, engines, viewer):
    engines[0].behaviour.tokens = 10_000
    socket = await socket_of(viewer, "/ws/chat")
    message = start()
    await socket.send(message)
    await socket.receive()
    await answers.ask_to_stop(Answer(str(viewer.pk), message["chat"], "a"))  # what another web process does
    frames = await answer_of(socket)
    assert frames[-1]["finish_reason"] == "cancelled"
    await socket.disconnect()


async def test_answer_without_a_follower_is_stopped(platform, engines, viewer):
    engines[0].behaviour.tokens = 10_000
    socket = await socket_of(viewer, "/ws/chat")
    message = start()
    await socket.send(message)
    await socket.receive()
    await socket.disconnect()
    answer = Answer(str(viewer.pk), message["chat"], "a")
    assert 50 < await answers.redis().ttl(f"{answer.key}:wanted") <= 60
    assert engines[0].running == 1, "it goes on for a minute"
    await answers.redis().delete(f"{answer.key}:wanted")  # the minute is over
    await until(lambda: engines[0].running == 0, 3)
    frames = [frame async for frame in follow.follow(answer, 0)]
    assert (frames[-1]["type"], frames[-1]["code"]) == ("error", "abandoned")


async def test_reader_too_far_behind_is_told(platform, viewer, monkeypatch):
    monkeypatch.setattr(answers, "MAX_FRAMES", 100)
    answer = Answer(str(viewer.pk), "c", "a")
    await answers.claim(answer, "r")
    for seq in range(1, 600):
        await answers.append(answer, answer.frame("delta", seq, text="x"))
    frames = [frame async for frame in follow.follow(answer, 0)]
    assert [(frame["type"], frame["code"], frame["seq"]) for frame in frames] == [("error", "resync", 0)]


async def test_engine_that_breaks_mid_answer_is_an_error_frame(platform, engines, viewer):
    engines[0].behaviour.cut_at = 5
    engines[0].behaviour.interval = 0.05
    socket = await socket_of(viewer, "/ws/chat")
    await socket.send(start())
    frames = await answer_of(socket)
    assert (frames[-1]["type"], frames[-1]["code"]) == ("error", "upstream_interrupted")
    assert len("".join(frame.get("text", "") for frame in frames).split()) == 5
    await socket.disconnect()


async def test_unknown_model_is_an_error_frame_with_a_hint(platform, viewer):
    socket = await socket_of(viewer, "/ws/chat")
    await socket.send(start(model="nope"))
    [frame] = await answer_of(socket)
    assert (frame["code"], frame["seq"]) == ("model_not_found", 1)
    assert "Available: m." in frame["message"]
    assert frame["hint"]
    await socket.disconnect()


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("{", "truncated"),
        ("[]", "object"),
        ({"type": "dance"}, "dance"),
        ({"type": "start"}, "chat"),
        (start(messages=[]), "messages"),
        (start(messages=[{"role": "king", "content": "x"}]), "king"),
        (start(messages=[{"role": "user", "content": 5}]), "messages[0].content"),
        (start(lane="../x"), "lane"),
        (start(chat="a:b"), "chat"),
        (start(params={"temperature": "hot"}), "params.temperature"),
        (start(params={"unheard": 1}), "unheard"),
        (start(params={"top_k": 2**64}), "params.top_k"),
        ('{"type": "start", "x": ' + "[" * 20_000, "unknown field x"),  # refused before it is read
        ({"type": "resume", "chat": "c", "lane": "a", "after": -1}, "after"),
        (start(messages=[{"role": "user", "content": "x" * 600_000}]), "KiB"),
    ],
)
async def test_bad_messages_are_refused_and_the_socket_lives(platform, viewer, message, says):
    socket = await socket_of(viewer, "/ws/chat")
    await socket.send(message)
    frame = await socket.receive()
    assert (frame["type"], frame["seq"]) == ("error", 0)
    assert says in frame["message"]
    await socket.send({"type": "resume", "chat": "unknown", "lane": "a"})
    assert (await socket.receive(8))["code"] == "not_found"
    await socket.disconnect()


async def test_client_that_left_is_not_taken_for_an_absent_broker(monkeypatch):
    from tursiops.playground.consumers import ChatConsumer

    async def gone(self, *args, **kwargs):
        raise ConnectionResetError

    monkeypatch.setattr(ChatConsumer, "send", gone)
    await ChatConsumer()._tell({"type": "delta"})


async def test_a_lane_answers_once_at_a_time_and_four_at_most(platform, engines, viewer):
    engines[0].behaviour.tokens = 10_000
    socket = await socket_of(viewer, "/ws/chat")
    message = start()
    await socket.send(message)
    await socket.receive()
    await socket.send(message)
    frame = await socket.receive()
    while frame["type"] == "delta":
        frame = await socket.receive()
    assert (frame["code"], frame["seq"]) == ("busy", 0)
    for lane in "bcde":
        await socket.send(message | {"lane": lane})
    while frame.get("code") != "too_many":
        frame = await socket.receive()
    assert frame["lane"] == "e"
    await socket.disconnect()


async def test_chats_are_ones_own(platform, viewer, member):
    socket = await socket_of(viewer, "/ws/chat")
    message = start()
    await socket.send(message)
    await answer_of(socket)
    other = await socket_of(member, "/ws/chat")
    await other.send({"type": "resume", "chat": message["chat"], "lane": "a", "after": 0})
    assert (await other.receive(8))["code"] == "not_found"


async def test_strangers_are_closed(team):
    assert await (await socket_of(None, "/ws/chat")).closed_with() == 4401


@pytest.mark.django_db
def test_socket_addresses_are_the_contracts():
    from tursiops.routing import websocket_urlpatterns

    assert {str(pattern.pattern) for pattern in websocket_urlpatterns} == {"ws/live", "ws/chat", ""}
