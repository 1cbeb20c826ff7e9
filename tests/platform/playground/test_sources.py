"""Who guessed each piece of an answer, from the engine's chunks through the gateway to frames."""

import uuid
from itertools import pairwise

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tursiops.playground import runs

from tests import committed
from tests.gateway_bench import route, snapshot
from tests.websockets import socket_of

team = committed.team
pytestmark = pytest.mark.speculation

PIECES = [
    [{"text": "So ", "source": None}],
    [{"text": "it is", "source": "lookahead"}],
    [{"text": " 🔥", "source": "lookahead"}, {"text": "!", "source": None}],
]


@pytest.fixture
async def engine():
    """Says PIECES; tells of them who asks."""
    asked = []

    async def chat(request):
        body = orjson.loads(await request.read())
        asked.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for pieces in PIECES:
            delta = {"content": "".join(piece["text"] for piece in pieces)}
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            if body.get("return_draft_sources") and body["model"] == "m":
                choice["tursiops"] = {"pieces": pieces}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        details = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2}
        usage = {"prompt_tokens": 3, "completion_tokens": 6, "completion_tokens_details": details}
        for event in (end, {"choices": [], "usage": usage}):
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", chat)])
    server = TestServer(app)
    await server.start_server()
    server.asked = asked
    yield server
    await server.close()


@pytest.fixture
async def platform(bench, engine, team, settings):
    settings.GATEWAY_PORT = int(bench.url.rpartition(":")[2])
    entry = snapshot.InstanceEntry(id=str(uuid.uuid4()), url=str(engine.make_url("")).rstrip("/"), token="t")
    ours = {"team": str(team.pk)}
    await bench.publish(*(route(name, entry, **ours, deployment=str(uuid.uuid4())) for name in ("m", "silent")))
    yield bench
    for _, task in list(runs._running.values()):
        task.cancel()


async def answer(socket, **fields):
    message = {"type": "start", "chat": str(uuid.uuid4()), "lane": "a", "model": "m", "params": {}}
    await socket.send(message | {"messages": [{"role": "user", "content": "hi"}]} | fields)
    frames = [await socket.receive()]
    while frames[-1]["type"] not in ("done", "error"):
        frames.append(await socket.receive())
    return frames


async def test_frames_carry_the_pieces_of_their_text_and_the_counts_come_with_the_end(platform, engine, viewer):
    socket = await socket_of(viewer, "/ws/chat")
    frames = await answer(socket, sources=True)
    deltas = [frame for frame in frames if frame["type"] == "delta"]
    for frame in deltas:
        assert "".join(piece["text"] for piece in frame["pieces"]) == frame["text"]
    flat = [
        (character, piece["source"]) for frame in deltas for piece in frame["pieces"] for character in piece["text"]
    ]
    assert flat == [
        (character, piece["source"]) for pieces in PIECES for piece in pieces for character in piece["text"]
    ]
    neighbours = [pair for frame in deltas for pair in pairwise(piece["source"] for piece in frame["pieces"])]
    assert all(one != other for one, other in neighbours)
    assert frames[-1]["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 3
    assert engine.asked[0]["return_draft_sources"] is True
    await socket.disconnect()


async def test_nothing_is_told_that_nobody_asked_or_no_engine_said(platform, engine, viewer):
    socket = await socket_of(viewer, "/ws/chat")
    plain = await answer(socket)
    silent = await answer(socket, model="silent", sources=True)
    for frames in (plain, silent):
        assert frames[-1]["type"] == "done"
        assert not any("pieces" in frame for frame in frames)
        assert "".join(frame["text"] for frame in frames if frame["type"] == "delta") == "So it is 🔥!"
    assert "return_draft_sources" not in engine.asked[0]
    await socket.disconnect()
