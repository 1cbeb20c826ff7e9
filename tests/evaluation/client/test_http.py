"""The protocol against servers that write bytes as they please."""

import asyncio
import datetime
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from evaluation.client import http
from evaluation.client.http import Client, Exchange, RequestError
from evaluation.client.servers import HttpServer, NullServer
from evaluation.client.target import Target
from evaluation.schema import Endpoint, RequestRecord
from evaluation.workload.item import Turn

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
EVENTS = (
    'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\r\n\r\n'
    ": ping\r\n\r\n"
    'data: {"choices": [{"delta": {"reasoning": "hm"}}], "usage": {"completion_tokens": 2}}\r\n\r\n'
    'data: {"choices": [{"delta": {"content": "海豚"}}], "usage": {"completion_tokens": 5}}\r\n\r\n'
    'data: {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}, "finish_reason": "tool_calls"}],'
    ' "usage": {"completion_tokens": 6}}\r\n\r\n'
    'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details":'
    ' {"cached_tokens": 4}}}\r\n\r\n'
    "data: [DONE]\r\n\r\n"
).encode()
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(EVENTS), EVENTS)


class Server:
    """`answer(writer, number)` writes what it will to each request, counted from 0."""

    def __init__(self, answer: Callable) -> None:
        self.answer, self.requests, self.connections, self.tasks = answer, [], 0, set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                await self.answer(writer, len(self.requests) - 1)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def against(answer: Callable, **endpoint: object) -> AsyncIterator[tuple[Server, Client]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    client = Client(Target(Endpoint(url=url + "/base/v1/", model="m", **endpoint), "secret"))
    try:
        yield server, client
    finally:
        await client.close()
        listening.close()
        if server.tasks:
            await asyncio.wait(server.tasks, timeout=2)


async def stream(client: Client, **options: object) -> RequestRecord:
    ended = asyncio.get_running_loop().create_future()
    now = time.monotonic_ns()
    turn = Turn(messages=[{"role": "user", "content": "hello"}], max_tokens=7, extra={"temperature": 1})
    head, body = client.target.stream_head, client.target.body(turn, [])
    record = RequestRecord(index=0, intended_ns=now)
    exchange = Exchange(record, head, body, ended.set_result, deadline_ns=now + 10**10, **options)
    client.send(exchange)
    await asyncio.wait_for(ended, 5)
    return record


def whole(data: bytes) -> Callable:
    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(data)

    return answer


async def test_what_is_asked_and_what_is_read():
    async with against(whole(CHUNKED), extra_body={"temperature": 0, "ignore_eos": True}) as (server, client):
        record = await stream(client)
    head, body = server.requests[0]
    assert head.startswith(b"POST /base/v1/chat/completions HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in head
    assert body == (
        b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":1,"ignore_eos":true,'
        b'"messages":[{"role":"user","content":"hello"}],"max_tokens":7}'
    )
    assert (record.status, record.error, record.finish_reason) == ("ok", "", "tool_calls")
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (9, 4, 7)
    assert [tokens for _, tokens in record.chunks] == [2, 3, 2]  # as told beside each; the last has the end's, too


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_bytes_may_come_as_they_like(size):
    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        for place in range(0, len(CHUNKED), size):
            writer.write(CHUNKED[place : place + size])
            await asyncio.sleep(0)

    async with against(answer) as (server, client):
        records = []
        for _ in range(2):
            records.append(await stream(client))
            await asyncio.sleep(0.1)  # [DONE] ends the record; the body's end, which frees the connection, comes later
    assert {(record.status, len(record.chunks), record.output_tokens) for record in records} == {("ok", 3, 7)}
    assert server.connections == 1
    times = [at for record in records for at, _ in record.chunks]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("data", "closes", "status", "error"),
    [
        (HEAD + b"\r\n" + EVENTS, True, "ok", ""),  # until the connection ends
        (HEAD + b"Content-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS, False, "ok", ""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED, False, "ok", ""),
        (b"", True, "error", "connection_closed: the server closed the connection before it answered"),
        (CHUNKED[:400], True, "cut", "connection_closed: the server closed the connection inside the answer"),
        (HEAD + b"\r\n" + EVENTS[:200], True, "cut", "stream_cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>", False, "error", "invalid_sse: the answer is no"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", False, "error", "invalid_http: a chunk begins with"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", False, "error", "invalid_http: an answer does not begin"),
        (b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nslow", False, "error", "http_429: slow"),
        (b'HTTP/1.1 400 Bad\r\nContent-Length: 22\r\n\r\n{"error": "too long" }', False, "error", "http_400: too long"),
    ],
)  # fmt: skip
async def test_every_way_an_answer_may_go(data, closes, status, error):
    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(data)
        if closes:
            writer.close()

    async with against(answer) as (_, client):
        record = await stream(client)
    assert record.status == status
    assert record.error.startswith(error) if error else not record.error
    assert record.end_ns is not None


async def test_a_kept_connection_that_was_closed_meanwhile_is_no_failure(monkeypatch):
    """The server ends idle connections without saying so; the request is sent again on a new one, once."""
    monkeypatch.setattr(http, "RESENT_WITHIN_NS", 10**10)  # however busy this machine is

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            writer.close()  # as if it had been closing when the request came
        else:
            writer.write(CHUNKED)

    async with against(answer) as (server, client):
        assert [(await stream(client)).status for _ in range(3)] == ["ok"] * 3
        assert server.connections == 2
    closing = itertools.repeat(True)

    async def always(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(CHUNKED) if number == 0 else writer.close() if next(closing) else None

    async with against(always) as (server, client):
        assert (await stream(client)).status == "ok"
        assert (await stream(client)).error.startswith("connection_closed")
        assert len(server.requests) == 3


async def test_a_request_that_the_server_may_have_worked_on_is_not_sent_again(monkeypatch):
    monkeypatch.setattr(http, "RESENT_WITHIN_NS", 10_000_000)

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            await asyncio.sleep(0.05)
            writer.close()
        else:
            writer.write(CHUNKED)

    async with against(answer) as (server, client):
        assert (await stream(client)).status == "ok"
        assert (await stream(client)).error.startswith("connection_closed")
        assert len(server.requests) == 2


async def test_a_request_of_its_own():
    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        status, body = [(b"200 OK", b'{"a": 1}'), (b"404 Not Found", b"gone"), (b"200 OK", b"")][number]
        if number < 2:
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with against(answer) as (_, client):
        assert await client.request("GET", "/v1/models") == b'{"a": 1}'
        with pytest.raises(RequestError, match="http_404: gone") as caught:
            await client.request("GET", "/v1/models")
        assert caught.value.code == "http_404"
        with pytest.raises(RequestError, match="timeout: no answer within"):
            await client.request("GET", "/v1/models", timeout_s=0.05)


def certificate(folder) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*private))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_tls_is_checked(tmp_path, monkeypatch):
    context = certificate(tmp_path)
    loop, null = asyncio.get_running_loop(), NullServer(4)
    server = await loop.create_server(lambda: HttpServer(null.answer), "127.0.0.1", 0, ssl=context)
    endpoint = Endpoint(url=f"https://localhost:{server.sockets[0].getsockname()[1]}", model="m")
    for trusted in (False, True):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        target = Target(endpoint)
        await target.look_up()
        client = Client(target)
        record = await stream(client)
        await client.close()
        assert record.status == ("ok" if trusted else "error"), record.error
        assert trusted or record.error.startswith("tls_failed: ")
    server.close()
