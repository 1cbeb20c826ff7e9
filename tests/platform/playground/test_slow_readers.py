"""Case 48 on real connections: four chats at once through gateway and web process, one of whose readers takes nothing
from its socket. The others keep their pace, what waits for the slow one waits in Redis alone, and neither the database
nor a channel hears of tokens."""

import asyncio
import base64
import json
import os
import socket
import time
import uuid
from collections import Counter

import pytest
from asgiref.sync import sync_to_async
from django.db.backends.utils import CursorWrapper
from tursiops.core import sockets
from tursiops.playground import runs
from tursiops.playground.answers import Answer

from evaluation import fake_engine
from tests import committed, factories
from tests.gateway_bench import instance, route, until
from tests.websockets import session_of, web_process

team, other_team = committed.team, committed.other_team
pytestmark = pytest.mark.slow

TOKENS, WORD = 400, "x" * 39_999 + " "
WHOLE = TOKENS * len(WORD)  # 16 MB of one answer: far more than what kernels and servers hold for a connection
HELD = WHOLE // 2  # a kernel alone takes up to 4 MB for a connection


@pytest.fixture
async def platform(bench, engines, team, settings, config, monkeypatch):
    settings.GATEWAY_PORT = int(bench.url.rpartition(":")[2])
    monkeypatch.setattr(fake_engine, "WORDS", (WORD,))
    engines[0].behaviour.tokens, engines[0].behaviour.interval = TOKENS, 0.005
    engine = instance(engines[0], str(uuid.uuid4()))
    await bench.publish(route("m", engine, team=str(team.pk), deployment=str(uuid.uuid4())))
    async with web_process(config.web_socket):
        yield bench
        for _, task in list(runs._running.values()):
            task.cancel()


def start(lane):
    message = {"chat": str(uuid.uuid4()), "lane": lane, "model": "m"}
    return message | {"messages": [{"role": "user", "content": "hello"}]}


async def connection_that_reads_nothing(bench, request: str) -> socket.socket:
    """A TCP connection with a small receive buffer, its request sent. Nothing is read until a test does."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, ("127.0.0.1", int(bench.url.rpartition(":")[2])))
    await loop.sock_sendall(made, request.encode())
    return made


async def stuck_websocket(bench, session: str, message: dict) -> socket.socket:
    key = base64.b64encode(os.urandom(16)).decode()
    made = await connection_that_reads_nothing(
        bench,
        "GET /ws/chat HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Cookie: sessionid={session}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n",
    )
    head = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(made, 4096), 5)
    assert b" 101 " in head
    text = json.dumps({"type": "start", **message}).encode()
    frame = bytes([0x81, 0x80 | 126]) + len(text).to_bytes(2, "big") + bytes(4) + text  # masked with zeros
    await asyncio.get_running_loop().sock_sendall(made, frame)
    return made


async def stuck_stream(bench, secret: str, message: dict) -> socket.socket:
    body = json.dumps(message)
    return await connection_that_reads_nothing(
        bench,
        f"POST /api/v1/playground/stream HTTP/1.1\r\nHost: web\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}",
    )


async def read_all(made: socket.socket, seconds: float = 10) -> int:
    """Bytes that come until the other side closes, or until none come for a second."""
    count, loop = 0, asyncio.get_running_loop()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            data = await asyncio.wait_for(loop.sock_recv(made, 1 << 20), 1)
        except (TimeoutError, ConnectionResetError):
            break
        if not data:
            break
        count += len(data)
    return count


async def chat(bench, session: str, lane: str) -> list[dict]:
    """One reader as a browser is; each frame with the time since the one before."""
    frames, before = [], time.monotonic()
    cookie = {"Cookie": f"sessionid={session}"}
    async with bench.session.ws_connect(bench.url + "/ws/chat", headers=cookie, max_msg_size=0) as made:
        await made.send_json({"type": "start", **start(lane)})
        while not frames or frames[-1]["type"] not in ("done", "error"):
            frame = json.loads(await made.receive_str(timeout=20))
            now = time.monotonic()
            frames.append(frame | {"waited": now - before})
            before = now
    return frames


@pytest.fixture
def statements(monkeypatch):
    """Every SQL statement of every thread, from when a test clears it."""
    seen: list[str] = []
    execute = CursorWrapper.execute

    def recording(self, sql, params=None):
        seen.append(str(sql))
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", recording)
    return seen


@pytest.mark.django_db
def test_the_recorder_sees_statements(statements):
    factories.make_team()
    assert any(sql.startswith("INSERT") for sql in statements)


@pytest.mark.parametrize("kind", ["websocket", "sse"])
async def test_case_48_reader_that_takes_nothing(platform, engines, viewer, team, statements, monkeypatch, kind):
    monkeypatch.setattr(sockets, "SEND_TIMEOUT_S", 60.0)  # stuck for the whole test
    session = await sync_to_async(session_of)(viewer)
    message = start("stuck")
    if kind == "websocket":
        stuck = await stuck_websocket(platform, session, message)
    else:
        key = await sync_to_async(factories.make_api_key)(team, created_by=viewer)
        stuck = await stuck_stream(platform, key.secret, message)
    readers = [asyncio.create_task(chat(platform, session, lane)) for lane in "bcd"]
    await until(lambda: engines[0].running == 4, 10)
    await platform.redis.config_resetstat()
    statements.clear()

    answers = await asyncio.gather(*readers)
    await until(lambda: engines[0].running == 0, 20)  # the engine has long said all to the slow one's writer
    commands = {
        name.removeprefix("cmdstat_"): row["calls"] for name, row in (await platform.redis.info("commandstats")).items()
    }

    for frames in answers:
        assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
        assert frames[-1]["type"] == "done"
        assert sum(len(frame.get("text", "")) for frame in frames) == WHOLE
        assert max(frame["waited"] for frame in frames) < 5
    assert statements == [], Counter(statements).most_common(5)
    assert not {"publish", "zadd"} & set(commands), "neither a channel nor the channel layer hears of it"
    stored = sum(len(frames) for frames in answers)
    assert commands["xadd"] <= 2 * stored + 8, "one frame per 50 ms, not per token"
    assert commands["xadd"] < 4 * TOKENS

    answer = Answer(str(viewer.pk), message["chat"], "stuck")
    kept = await platform.redis.xlen(answer.key)
    assert kept * 2 > max(len(frames) for frames in answers), "the slow one's answer waits whole in Redis"
    await platform.redis.delete(answer.key)  # what comes now lay in processes and kernels
    held = await read_all(stuck)
    stuck.close()
    assert 0 < held < HELD, "what waits for a slow reader lies in Redis alone"
