"""The client to the engines, against a server that says exactly what a test tells it, on both event loops."""

import asyncio
import socket
import struct

import pytest
from tursiops.gateway import engine_client
from tursiops.gateway.engine_client import (
    HIGH_WATER,
    LONGEST_HEAD,
    BadAnswer,
    EngineClient,
    Interrupted,
    Response,
    Unanswered,
    Unreachable,
    target_of,
)

from tests.engine_wire import CHUNKED, HANG_UP, HOLD, OK, STREAM, ask, engine, failing, whole
from tests.engine_wire import event_loop_policy as event_loop_policy
from tests.gateway_bench import full_port, until

# The hook that replaces this fixture would hold for every test of the session.
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")


async def test_request_as_it_is_written_and_answer_as_it_is_read():
    async with engine(b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nRETRY-AFTER:  7 \r\nContent-Length: 2\r\n\r\nhi") as (
        told,
        client,
        url,
    ):
        response = await client.post(url, b'{"a":1}', {"Authorization": "Bearer t", "X-Request-Id": "r"})
        assert (response.status, await whole(response), response.complete) == (200, b"hi", True)
        assert response.headers == {"Content-Type": "a/b", "Retry-After": "7", "Content-Length": "2"}
        assert await response.read() == b"", "the end stays the end"
    host = url.removeprefix("http://").removesuffix("/v1/x").encode()
    assert told.requests == [
        b"POST /v1/x HTTP/1.1\r\nHost: " + host + b"\r\nAuthorization: Bearer t\r\nX-Request-Id: r\r\n"
        b'Content-Length: 7\r\n\r\n{"a":1}'
    ]


async def test_connections_are_kept_and_shared_out():
    async with engine(OK, CHUNKED, OK) as (told, client, url):
        for _ in range(3):
            await ask(client, url)
        assert told.connections == 1
        assert await asyncio.gather(*(ask(client, url) for _ in range(5))) == [(200, b"hi")] * 5
        assert 2 <= told.connections <= 5
        before = told.connections
        await asyncio.gather(*(ask(client, url) for _ in range(before)))
        assert told.connections == before
        client.close()
        await until(lambda: told.closed == before)


async def test_idle_connections_are_closed_in_time(monkeypatch):
    monkeypatch.setattr(engine_client, "IDLE_S", 0.1)
    async with engine(OK) as (told, client, url):
        await ask(client, url)
        await asyncio.sleep(0.02)
        assert told.closed == 0
        await until(lambda: told.closed == 1)
        await until(lambda: not client._idle)
        assert (await ask(client, url))[0] == 200


async def test_engine_that_closed_an_idle_connection_fails_no_request():
    async with engine(OK) as (told, client, url):
        for _ in range(3):
            assert await ask(client, url) == (200, b"hi")
            told.writers[-1].close()
            await until(lambda: not client._idle)
        assert told.connections == 3


async def test_kept_connection_that_closes_under_a_request_is_tried_again_on_a_new_one():
    async with engine(OK, HANG_UP, OK) as (told, client, url):
        await ask(client, url)
        assert await ask(client, url) == (200, b"hi")
        assert (told.connections, len(told.requests)) == (2, 3)


async def test_what_is_not_tried_again(monkeypatch):
    """A new connection; one that had begun to answer; one that broke so late that the engine was at work."""
    async with engine(HANG_UP) as (told, client, url):
        assert "before the engine answered" in await failing(client, url, Unanswered)
        assert len(told.requests) == 1
    async with engine(OK, (b"HTTP/1.1 2", HANG_UP)) as (told, client, url):
        await ask(client, url)
        await failing(client, url, Interrupted)
        assert len(told.requests) == 2
    monkeypatch.setattr(engine_client, "STALE_S", 0.0)
    async with engine(OK, HANG_UP) as (told, client, url):
        await ask(client, url)
        await failing(client, url, Unanswered)
        assert len(told.requests) == 2


async def reset(writer):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await asyncio.sleep(0.05)
    writer.transport.abort()


@pytest.mark.parametrize(
    "answer",
    [
        (STREAM + b"3\r\nabc\r\n", HANG_UP),
        (STREAM + b"3\r\nabc\r\n", reset),
        (STREAM + b"3\r\nabc\r\n5\r\n", HANG_UP),
        (STREAM + b"3\r\nabc\r\n0\r\n", HANG_UP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", HANG_UP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", reset),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", reset),
    ],
)
async def test_answer_that_breaks_off_gives_what_came_and_then_an_error(answer):
    async with engine(answer) as (_, client, url):
        response = await client.post(url, b"", {})
        assert await response.read() == b"abc"
        for _ in range(2):
            with pytest.raises(Interrupted):
                await response.read()
        assert not response.complete
        assert not client._idle


async def test_answer_without_a_length_ends_with_the_connection():
    for version in (b"1.0", b"1.1"):
        async with engine((b"HTTP/" + version + b" 200 OK\r\n\r\nabc", HANG_UP)) as (_, client, url):
            assert await ask(client, url) == (200, b"abc")
            assert not client._idle


class Wire(asyncio.Transport):
    """For what must arrive in given pieces. `calls`: what was asked of it."""

    def __init__(self):
        super().__init__()
        self.calls: list[str] = []

    def abort(self):
        self.calls.append("abort")

    def pause_reading(self):
        self.calls.append("pause")

    def resume_reading(self):
        self.calls.append("resume")

    def get_write_buffer_size(self):
        return 0

    def close(self):
        return


def on_a_wire():
    response, wire = Response(EngineClient(1), target_of("http://x")[0]), Wire()
    response.connection_made(wire)
    return response, wire


async def test_reading_pauses_over_the_mark_and_goes_on_once_all_is_taken():
    response, wire = on_a_wire()
    response.data_received(STREAM)
    piece = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    for _ in range(2 * HIGH_WATER // len(piece)):
        response.data_received(piece)
        await response.read()
    assert wire.calls == [], "a reader that keeps up pauses nothing"
    for _ in range(2 * HIGH_WATER // len(piece)):  # what the transport had in hand still comes
        response.data_received(piece)
    assert wire.calls == ["pause"]
    await response.read()
    assert wire.calls == ["pause", "resume"]


async def test_connection_is_not_kept_paused():
    response, wire = on_a_wire()
    response.data_received(STREAM + b"20000\r\n" + b"x" * 0x20000)
    response.data_received(b"\r\n0\r\n\r\n")
    assert wire.calls == ["pause", "resume"]
    assert (len(await response.read()), await response.read()) == (0x20000, b"")
    assert wire.calls == ["pause", "resume"], "it may carry another answer by then"


async def test_connection_that_is_lost_before_the_request():
    response, wire = on_a_wire()
    response.connection_lost(None)
    with pytest.raises(Unanswered):
        await response.begin(b"", b"")
    assert wire.calls == []


@pytest.mark.parametrize("answer", [OK, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED])
async def test_answers_split_at_every_byte(answer):
    body = b"hi" if answer is OK else b"data: a\n\ndata: bbbbbbbbbbbbbbbbbb\n\n"
    pieces = [(answer[:cut], answer[cut:]) for cut in range(1, len(answer))]
    for parts in [*pieces, tuple(answer[at : at + 1] for at in range(len(answer)))]:
        response, _ = on_a_wire()
        for number, part in enumerate(parts):
            assert not response.complete, (number, parts)
            response.data_received(part)
        assert (response.status, response.complete, await whole(response)) == (200, True, body)
        assert "X-Trailer" not in response.headers


async def test_answer_sent_byte_by_byte():
    async def slowly(writer):
        for at in range(len(CHUNKED)):
            writer.write(CHUNKED[at : at + 1])
            await asyncio.sleep(0)

    async with engine(slowly) as (told, client, url):
        for _ in range(3):
            assert (await ask(client, url))[1] == b"data: a\n\ndata: bbbbbbbbbbbbbbbbbb\n\n"
        assert told.connections == 1


async def test_interim_answers_are_passed_over():
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with engine((interim, interim + OK)) as (told, client, url):
        for _ in range(2):
            response = await client.post(url, b"", {})
            assert (response.status, response.headers) == (200, {"Content-Length": "2"})
            assert await whole(response) == b"hi"
        assert told.connections == 1


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_that_have_no_body(status):
    async with engine(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n", OK) as (told, client, url):
        assert await ask(client, url) == (int(status[:3]), b"")
        assert await ask(client, url) == (200, b"hi")
        assert told.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen",
        OK + b"???",
    ],
)
async def test_connections_that_carry_nothing_more(answer):
    async with engine(answer) as (told, client, url):
        for _ in range(3):
            assert await ask(client, url) == (200, b"hi")
        await until(lambda: told.closed == 3)
        assert told.connections == 3


async def test_bytes_that_nobody_asked_for_end_a_kept_connection():
    async with engine(OK) as (told, client, url):
        await ask(client, url)
        told.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: told.closed == 1)
        assert await ask(client, url) == (200, b"hi")


@pytest.mark.parametrize(
    "answer",
    [
        b"\x16\x03\x01\x00garbage",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
        STREAM + b"xyz\r\n",
        STREAM + b"ffffffffffffffffffff\r\n",
    ],
)
async def test_what_is_no_http(answer):
    async with engine((answer, HOLD)) as (told, client, url):
        assert "no HTTP" in await failing(client, url, BadAnswer)
        await until(lambda: told.closed == 1)


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 10_000),
        (b"HTTP/1.1 200 OK\r\n", b"X-Many: x\r\n" * 1_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
        (STREAM + b"0\r\n", b"X-Trailer: x\r\n" * 800),
        (STREAM + b"1;", b"x" * 10_000),
    ],
)
async def test_heads_and_trailers_have_an_end(begin, again):
    async def say(writer):
        writer.write(begin)
        while not writer.is_closing():
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(0.001)

    async with engine(say) as (told, client, url):
        assert str(LONGEST_HEAD) in await failing(client, url, BadAnswer)
        await until(lambda: told.closed == 1)


async def test_engines_that_cannot_be_reached():
    client = EngineClient(0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        await failing(client, f"http://127.0.0.1:{free.getsockname()[1]}/", Unreachable)
    for url in (
        "nonsense",
        "ftp://127.0.0.1/",
        "ftp://127.0.0.1:21/",
        "http:///x",
        "http://h:99999/",
        "http://a b/",
        "http://h/\r\nX: y",
    ):
        await failing(client, url, Unreachable)


async def test_connection_that_takes_too_long():
    with full_port() as url:
        assert "TimeoutError" in await failing(EngineClient(0.2), url, Unreachable)


async def test_memory_of_a_slow_reader_is_bounded():
    size, sent = 2**16, 0

    async def flood(writer):
        nonlocal sent
        writer.write(STREAM)
        for _ in range(1_000):
            writer.write(b"%x\r\n" % size + b"x" * size + b"\r\n")
            await writer.drain()
            sent += size
        writer.write(b"0\r\n\r\n")

    async with engine(flood, OK) as (told, client, url):
        response = await client.post(url, b"", {})
        seen = -1
        while seen != sent:
            seen = sent
            await asyncio.sleep(0.2)
        assert sent < 900 * size, "the engine has to wait"
        assert response._held <= HIGH_WATER + 2**18
        assert len(await whole(response)) == 1_000 * size
        assert sent == 1_000 * size
        assert await ask(client, url) == (200, b"hi")
        assert told.connections == 1, "a connection that was held up is as good as any"


async def test_answer_that_came_while_reading_was_paused_frees_its_connection():
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
    async with engine(large) as (told, client, url):
        for _ in range(5):
            response = await client.post(url, b"", {})
            await asyncio.sleep(0.02)
            assert len(await whole(response)) == 300_000
        assert told.connections == 1


async def test_closing_makes_a_waiting_read_fail_and_the_engine_notices():
    async with engine((STREAM + b"1\r\na\r\n", HOLD)) as (told, client, url):
        response = await client.post(url, b"", {})
        assert await response.read() == b"a"
        waiting = asyncio.create_task(response.read())
        await asyncio.sleep(0.01)
        response.close()
        with pytest.raises(Interrupted):
            await asyncio.wait_for(waiting, 1)
        await until(lambda: told.closed == 1)
        response.close()


async def test_cancelled_requests_leave_no_connection():
    async with engine(HOLD) as (told, client, url):
        asking = asyncio.create_task(client.post(url, b"", {}))
        await until(lambda: told.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: told.closed == 1)
    async with engine((STREAM + b"1\r\na\r\n", HOLD)) as (told, client, url):
        response = await client.post(url, b"", {})
        assert await response.read() == b"a"
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0.01)
        reading.cancel()
        response.close()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(lambda: told.closed == 1)


async def test_answer_before_the_request_was_taken():
    """Its rest would be read as the next request's head: the connection is not used again."""

    read, ended = asyncio.Event(), asyncio.Event()

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await read.wait()
        writer.close()
        ended.set()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024)
    client = EngineClient(1)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    assert await ask(client, url, b"x" * 30_000_000) == (413, b"no")
    assert not client._idle
    read.set()
    await ended.wait()
    server.close()


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b"])
async def test_headers_cannot_be_smuggled(value):
    async with engine(OK) as (told, client, url):
        with pytest.raises(ValueError, match="line break"):
            await client.post(url, b"", {"Authorization": value})
        assert not told.requests


async def test_ipv6():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        async with engine(OK, host="::1") as (told, client, url):
            assert await ask(client, url) == (200, b"hi")
            assert b"\r\nHost: [::1]:" in told.requests[0]
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


def test_targets():
    assert target_of("http://h/v1/x") == (("h", 80, False), "POST /v1/x HTTP/1.1\r\nHost: h")
    assert target_of("https://u:p@H:8443/a?b=c#d") == (("h", 8443, True), "POST /a?b=c HTTP/1.1\r\nHost: H:8443")
    assert target_of("https://[::1]") == (("::1", 443, True), "POST / HTTP/1.1\r\nHost: [::1]")
