"""Streams over kept connections, as an asyncio protocol of our own: a client library costs several times its time.

What happens to a request is written into its `RequestRecord` as bytes arrive; one clock reading stands for all that a
read brought. A `Client` belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from evaluation.client.framing import LONGEST_HEAD, Body, FramingError, Head, body_of
from evaluation.client.sse import DONE, SseError, SseParser, read_chunk
from evaluation.client.target import Target
from evaluation.schema import RequestRecord

Status = Literal["ok", "error", "timeout", "cut", "cancelled"]
RESENT_WITHIN_NS = 100_000_000  # of its start: later the server may have been at work on the request
LONGEST_ERROR = 64 * 2**10  # bytes of an error's body that are read


class Exchange:
    """One request and what becomes of it. `on_end(exchange)` is called once, at its end."""

    __slots__ = (
        "_finish", "_sizes", "_sse", "_usage", "body", "connection", "content", "deadline_ns", "ended", "head",
        "keep_content", "on_end", "record", "resent", "stream", "whole",
    )  # fmt: skip

    def __init__(
        self,
        record: RequestRecord,
        head: bytes,
        body: bytes,
        on_end: Callable[[Exchange], None],
        *,
        deadline_ns: int,
        stream: bool = True,
        keep_content: bool = False,
    ) -> None:
        self.record, self.head, self.body, self.on_end = record, head, body, on_end
        self.deadline_ns = deadline_ns
        self.stream = stream
        self.keep_content = keep_content
        self.content: list[str] = []  # of the answer, where a following turn repeats it
        self.whole = b""  # body of an answer that is no stream
        self.connection: Connection | None = None
        self.resent = False
        self.ended = False
        self._sse = SseParser()
        self._sizes: list[int] = []  # bytes, or tokens where the server counts them, of each of the record's chunks
        self._usage: list[int] = []  # completion tokens told beside each chunk
        self._finish: str | None = None

    def read(self, now: int, content: bytes) -> bool:
        """Content of a stream. Returns whether the stream has said all. Raises SseError."""
        record = self.record
        for event in self._sse.feed(content):
            if event == DONE:
                self._close_stream(now)
                return True
            chunk = read_chunk(event)
            if chunk.error is not None:
                self.end(now, "error", f"stream_error: {chunk.failure()}")
                return True
            usage = chunk.usage
            if usage is not None:
                if usage.completion_tokens is not None:
                    record.output_tokens = usage.completion_tokens
                record.prompt_tokens = usage.prompt_tokens
                record.cached_tokens = usage.cached_tokens
                record.accepted_tokens, record.rejected_tokens = usage.accepted_tokens, usage.rejected_tokens
            for choice in chunk.choices:
                if choice.finish_reason is not None:
                    self._finish = choice.finish_reason
                text = choice.generated()
                if text:
                    if record.first_ns is None:
                        record.first_ns = now
                    record.chunks.append((now, 1))
                    self._sizes.append(len(text))
                    if usage is not None and usage.completion_tokens is not None:
                        self._usage.append(usage.completion_tokens)
                    if self.keep_content:
                        self.content.append(choice.content())
        return False

    def close_body(self, now: int) -> None:
        """The body has ended, as HTTP sees it."""
        if self.ended:
            return
        if not self.stream:
            self.end(now, "ok", "")
        elif self._finish is not None:
            self._close_stream(now)
        else:
            self.end(now, "cut", "stream_cut: the stream ended without [DONE] and without a finish_reason")

    def _close_stream(self, now: int) -> None:
        no_usage = self.record.output_tokens is None
        self.end(now, "ok", "no_usage: the stream told no token counts, so TPOT is undefined" if no_usage else "")

    def end(self, now: int, status: Status, error: str) -> None:
        """Once; what comes later is ignored."""
        if self.ended:
            return
        self.ended = True
        record = self.record
        record.end_ns, record.status, record.error, record.finish_reason = now, status, error, self._finish
        self._share_tokens()
        self.on_end(self)

    def _share_tokens(self) -> None:
        """Tokens per chunk: as the server told beside each, else one, else the usage shared out by length of text."""
        record = self.record
        chunks, total = record.chunks, record.output_tokens
        if not chunks or total is None:
            return
        if len(self._usage) == len(chunks) and self._usage[-1] <= total:
            tokens = [after - before for before, after in zip([0, *self._usage], self._usage, strict=False)]
            tokens[-1] += total - self._usage[-1]  # one that has no text, as an end of sequence
        elif total == len(chunks):
            return
        else:
            tokens = share_out(total, self._sizes)
        record.chunks = [(at, count) for (at, _), count in zip(chunks, tokens, strict=True)]


def share_out(total: int, sizes: list[int]) -> list[int]:
    """`total` in whole parts like `sizes`, at least one each where that is possible (largest remainders)."""
    least = 1 if total >= len(sizes) else 0
    rest, whole = total - least * len(sizes), sum(sizes)
    shares = [rest * size / whole for size in sizes]
    parts = [int(share) for share in shares]
    order = sorted(range(len(sizes)), key=lambda index: parts[index] - shares[index])
    for index in order[: rest - sum(parts)]:
        parts[index] += 1
    return [least + part for part in parts]


class Connection(asyncio.Protocol):
    """One connection; carries one exchange at a time."""

    __slots__ = ("_begun_ns", "_body", "_buffer", "_client", "_exchange", "_head", "_transport", "used")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._head: Head | None = None
        self._body: Body | None = None
        self._buffer = b""
        self._begun_ns = 0  # when the exchange was written
        self.used = 0  # exchanges before this one

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream socket it is a Transport

    def start(self, exchange: Exchange) -> None:
        self._exchange = exchange
        exchange.connection = self
        self._head = self._body = None
        self._buffer = b""
        self._begun_ns = time.monotonic_ns()
        assert self._transport is not None
        self._transport.write(b"".join((exchange.head, b"%d\r\n\r\n" % len(exchange.body), exchange.body)))

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Drops the connection and what it carries; the exchange has been ended by who calls."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for
            self.abort()
            return
        try:
            if self._body is None:
                data = self._read_head(now, data)
                if self._body is None:
                    return
            content, ended = self._body.feed(data)
            self._take(now, exchange, content)
            if ended:
                self._finish(now, exchange)
        except (FramingError, SseError) as error:
            self.abort()
            exchange.end(now, "error", f"{error.code}: {error}")

    def _read_head(self, now: int, data: bytes) -> bytes:
        """What of the data follows the head, once that is whole."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = Head(self._buffer[:end])
            self._buffer = self._buffer[end + 4 :]
            if head.status < 200:  # 100 Continue and the like come before the answer
                continue
            exchange = self._exchange
            assert exchange is not None
            record = exchange.record
            record.headers_ns = now
            for name in ("queue", "overhead"):
                if (value := head.number(b"x-tursiops-%b-ms" % name.encode())) is not None:
                    record.server_ms[name] = value
            if exchange.stream and head.status == 200:
                kind = head.headers.get(b"content-type", b"")
                if not kind.lower().startswith(b"text/event-stream"):
                    raise SseError(f"the answer is no event stream but {kind[:80].decode('latin-1') or 'of no type'}")
            self._head, self._body = head, body_of(head)
            return self._buffer
        if len(self._buffer) > LONGEST_HEAD:
            raise FramingError("the head of an answer does not end")
        return b""

    def _take(self, now: int, exchange: Exchange, content: bytes) -> None:
        assert self._head is not None
        if exchange.ended or not content:
            return
        if self._head.status == 200 and exchange.stream:
            exchange.read(now, content)
        elif self._head.status == 200 or len(exchange.whole) < LONGEST_ERROR:
            exchange.whole += content

    def _finish(self, now: int, exchange: Exchange) -> None:
        """The body is whole: the connection may carry another."""
        assert self._head is not None
        keeps = self._head.keeps
        if self._head.status != 200:
            exchange.end(now, "error", f"http_{self._head.status}: {_message(exchange.whole)}")
        exchange.close_body(now)
        self._exchange = None
        self.used += 1
        if keeps:
            self._client.release(self)
        else:
            self.abort()

    def eof_received(self) -> bool | None:
        return None  # the transport closes itself

    def connection_lost(self, error: Exception | None) -> None:
        now = time.monotonic_ns()
        exchange, self._exchange = self._exchange, None
        self._client.forget(self)
        if exchange is None or exchange.ended:
            return
        untouched = self._head is None and not self._buffer and now - self._begun_ns <= RESENT_WITHIN_NS
        closed = error is None or isinstance(error, ConnectionError)
        if untouched and closed and self.used and not exchange.resent:
            exchange.resent = True  # a kept connection that the server had closed: the request never reached it
            self._client.send_on_new(exchange)
            return
        if self._body is not None and self._body.close():
            self._exchange = exchange
            self._finish(now, exchange)
        elif error is not None:
            exchange.end(now, "error", f"connection_reset: {error or type(error).__name__}")
        elif self._head is None:
            exchange.end(now, "error", "connection_closed: the server closed the connection before it answered")
        else:
            exchange.end(now, "cut", "connection_closed: the server closed the connection inside the answer")


def _message(body: bytes) -> str:
    """Of an error's body: OpenAI's `error.message`, else its beginning."""
    try:
        found: Any = msgspec.json.decode(body)
        error = found.get("error", found)
        return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
    except (msgspec.DecodeError, AttributeError, UnicodeDecodeError):
        return body[:200].decode("utf-8", "replace")


class Client:
    """Sends exchanges to one target, over as many connections as are needed at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._idle: list[Connection] = []  # the last used is the next: few stay warm
        self._open: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    def send(self, exchange: Exchange) -> None:
        """At once where a connection is idle, else once a new one is made; a failure is the record's."""
        exchange.record.sent_ns = time.monotonic_ns()
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.usable:
                connection.start(exchange)
                return
        self.send_on_new(exchange)

    def send_on_new(self, exchange: Exchange) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: Exchange) -> None:
        begun = time.monotonic_ns()
        loop, target = asyncio.get_running_loop(), self.target
        host, port = target.connect_to
        name = target.host if target.tls is not None else None
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self), host, port, ssl=target.tls, server_hostname=name
            )
        except OSError as error:
            exchange.end(time.monotonic_ns(), "error", f"{_connect_code(error)}: {error}")
            return
        self._open.add(connection)
        exchange.record.connect_ns = time.monotonic_ns() - begun
        if exchange.ended:  # by its time-out
            self.release(connection)
        else:
            connection.start(exchange)

    def release(self, connection: Connection) -> None:
        if connection.usable:
            self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def request(self, method: str, path: str, body: bytes = b"", timeout_s: float = 30.0) -> bytes:
        """The body of an answer with status 200. Raises RequestError."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_end(_: Exchange) -> None:
            if not ended.done():
                ended.set_result(None)

        now = time.monotonic_ns()
        exchange = Exchange(RequestRecord(index=0, intended_ns=now), self.target.head(method, path), body, on_end,
                            deadline_ns=now + int(timeout_s * 1e9), stream=False)  # fmt: skip
        self.send(exchange)
        try:
            await asyncio.wait_for(ended, timeout_s)
        except TimeoutError as error:
            if exchange.connection is not None:
                exchange.connection.abort()
            raise RequestError(f"timeout: no answer within {timeout_s:g} s") from error
        if exchange.record.status != "ok":
            raise RequestError(exchange.record.error)
        return exchange.whole

    async def close(self) -> None:
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()


class RequestError(Exception):
    """A single request failed; the text is the record's error, its code first."""

    @property
    def code(self) -> str:
        return str(self).partition(":")[0]


def _connect_code(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "tls_failed"
    if isinstance(error, ConnectionRefusedError):
        return "connection_refused"
    return "connect_failed"
