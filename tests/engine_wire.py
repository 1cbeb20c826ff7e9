"""An engine that says exactly what a test tells it, and the gateway's client to it."""

import asyncio
import contextlib

import pytest
import uvloop
from tursiops.gateway.engine_client import EngineClient

from tests.gateway_bench import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"9\r\ndata: a\n\n\r\n1a;note=x\r\ndata: bbbbbbbbbbbbbbbbbb\n\n\r\n0\r\nX-Trailer: t\r\n\r\n"
)
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOLD, HANG_UP = "hold", "hang up"


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy(), uvloop.EventLoopPolicy()], ids=["asyncio", "uvloop"])
def event_loop_policy(request):
    return request.param


class Server:
    """Says `answers` in turn, the last one again and again. HANG_UP after an answer or in its place; HOLD: no more."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.connections = 0
        self.closed = 0
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                for part in answer if isinstance(answer, tuple) else (answer,):
                    if part is HANG_UP:
                        return
                    if part is HOLD:
                        await reader.read()
                        return
                    if callable(part):
                        await part(writer)
                    else:
                        writer.write(part)
                        await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.closed += 1
            writer.close()


@contextlib.asynccontextmanager
async def engine(*answers, host="127.0.0.1", tls=None, connect_timeout=2.0):
    """(a server, a client, the server's url)"""
    told = Server(*answers)
    server = await asyncio.start_server(told.serve, host, 0, ssl=tls)
    client = EngineClient(connect_timeout)
    name = f"[{host}]" if ":" in host else host
    try:
        yield told, client, f"http{'s' if tls else ''}://{name}:{server.sockets[0].getsockname()[1]}/v1/x"
    finally:
        client.close()
        for writer in told.writers:
            writer.close()
        server.close()
        await until(lambda: told.closed == told.connections)


async def whole(response):
    parts = []
    while data := await response.read():
        parts.append(data)
    return b"".join(parts)


async def ask(client, url, body=b"{}"):
    response = await client.post(url, body, {"Authorization": "Bearer t"})
    try:
        return response.status, await whole(response)
    finally:
        response.close()


async def failing(client, url, kind):
    with pytest.raises(kind) as raised:
        await ask(client, url)
    return str(raised.value)
