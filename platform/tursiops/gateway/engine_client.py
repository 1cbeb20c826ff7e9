"""HTTP to the engines: POST over kept connections, the answer as bytes as they come. aiohttp took 12 us a token more.

An engine that hangs up on an idle connection fails no request. What a slow reader leaves waits in the kernel, not here.
No redirects, cookies, proxies or compression. One event loop. Units: bytes and seconds.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

IDLE_S = 30.0  # a connection is kept for so long
STALE_S = 1.0  # a kept connection that breaks later than this had carried its request
HIGH_WATER = 64 * 2**10  # of an answer, unread; then its connection is not read until they are taken
LONGEST_HEAD = 64 * 2**10  # reads that bring no content, of one answer: its head, trailers

_PLAIN = re.compile("[!-~]+")
_tls = functools.cache(ssl.create_default_context)


class EngineError(Exception):
    """Of the connection to an engine; its text says what happened, in words fit for a client."""


class Unreachable(EngineError):
    """No connection could be made, within the time for it."""


class Interrupted(EngineError):
    """The connection ended before the answer did."""


class Unanswered(Interrupted):
    """The connection ended before one byte of the answer."""


class BadAnswer(EngineError):
    """What came is no HTTP, or its head is too large."""


class Address(NamedTuple):
    host: str
    port: int
    tls: bool


class Response(asyncio.Protocol):
    """An engine's answer, for one reader, who closes it. `headers`: names in Title-Case, the last of several.

    To the loop it is the protocol of the connection that brings it, and stays so until another answer takes its place.
    """

    def __init__(self, client: EngineClient, address: Address) -> None:
        self.status = 0  # until the head is whole
        self.headers: dict[str, str] = {}
        self.complete = False  # its last byte has come
        self._client = client
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._held = 0  # bytes that came since the reader took all, framing included
        self._dry = 0  # bytes of reads that brought no content
        self._paused = False
        self._keeps = False  # the connection can carry another
        self._ended = False  # nothing more is to come: it is complete, or there is an error
        self._error: EngineError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.on_body = self._pieces.append
        self._parser = HttpResponseParser(self)  # last: it looks for `on_body` now

    async def begin(self, head: bytes, body: bytes) -> Response:
        """Send a request, and wait for the head of its answer. Raises EngineError."""
        if not self._ended:
            self._transport.writelines((head, body))
        try:
            while not self.status:
                if self._error is not None:
                    raise self._error
                self._waiter = self._loop.create_future()
                await self._waiter
        except BaseException:
            self.close()
            raise
        return self

    async def read(self) -> bytes:
        """What has come, a byte at least; none at the end. Raises Interrupted or BadAnswer, once all of it is read."""
        pieces = self._pieces
        while not pieces:
            if self._error is not None:
                raise self._error
            if self.complete:
                return b""
            self._waiter = self._loop.create_future()
            await self._waiter
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._paused and not self._ended:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Drop the connection unless the answer is whole: a read that waits raises Interrupted."""
        if not self._ended:
            self._fail(Interrupted("it was closed on this side"))

    # The loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._ended:  # bytes that nobody asked for
            self._transport.abort()
            return
        before = len(self._pieces)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if not self.complete:
                self._fail(BadAnswer(f"the engine's answer is no HTTP: {error}"))
                return
            self._keeps = False  # it says more than it was asked
        if self.complete:
            self._finish()
            return
        if len(self._pieces) == before:
            self._dry += len(data)
            if self._dry > LONGEST_HEAD:
                self._fail(BadAnswer(f"the head of the engine's answer is over {LONGEST_HEAD} bytes"))
                return
        self._held += len(data)
        if self._held > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if self._waiter is not None:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.forget(self._address, self._transport)
        if self._ended:
            return
        if not self.status and not self._dry:
            self._end(Unanswered("it was closed before the engine answered"))
        elif self.status and self._ends_by_close() and error is None:
            self.complete = True
            self._end(None)
        else:
            self._end(Interrupted("it was reset" if error else "it was closed inside the answer"))

    # The parser calls these, and `on_body`. What they raise makes it raise.

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else a trailer
            self.headers[name.decode("latin-1").title()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 100 or status == 101:  # no status, or an upgrade that nobody asked for
            raise ValueError(status)
        if status >= 200:
            self.status = status

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            self._keeps = self._parser.should_keep_alive()
        else:  # 100 Continue and the like come before the answer
            self.headers.clear()

    def _ends_by_close(self) -> bool:
        chunked = self.headers.get("Transfer-Encoding", "").lower().endswith("chunked")
        return not chunked and "Content-Length" not in self.headers

    def _finish(self) -> None:
        self._end(None)
        if self._keeps and not self._transport.get_write_buffer_size():  # else the request was not taken whole
            if self._paused:
                self._transport.resume_reading()
            self._client.keep(self._address, self._transport)
        else:
            self._transport.abort()

    def _fail(self, error: EngineError) -> None:
        self._transport.abort()
        self._end(error)

    def _end(self, error: EngineError | None) -> None:
        self._ended = True
        self._error = error
        del self._parser  # it holds our methods: a cycle
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():  # done: its reader was cancelled
            waiter.set_result(None)


class EngineClient:
    """As many connections as there are answers at once. `connect_timeout`: for the name, the connection and TLS."""

    def __init__(self, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._idle: dict[Address, dict[asyncio.Transport, asyncio.TimerHandle]] = {}  # each until it expires

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """An answer whose head has come, of any status. Raises EngineError; ValueError for what no header can say."""
        address, line = target_of(url)
        head = _head(line, headers, len(body))
        kept = self._take(address)
        if kept is not None:
            sent = time.monotonic()
            response = Response(self, address)
            kept.set_protocol(response)
            response.connection_made(kept)
            try:
                return await response.begin(head, body)
            except Unanswered:
                if time.monotonic() - sent > STALE_S:
                    raise
        return await (await self._connect(address)).begin(head, body)

    def close(self) -> None:
        """Close what is idle; answers are closed by their readers."""
        for address in list(self._idle):
            while (transport := self._take(address)) is not None:
                transport.close()

    def keep(self, address: Address, transport: asyncio.Transport) -> None:
        """A connection that has nothing to do; the next request takes the last of them, so few stay warm."""
        expiry = asyncio.get_running_loop().call_later(IDLE_S, transport.close)
        self._idle.setdefault(address, {})[transport] = expiry

    def forget(self, address: Address, transport: asyncio.Transport) -> None:
        """A connection that has ended, idle or not."""
        idle = self._idle.get(address, {})
        if transport in idle:
            idle.pop(transport).cancel()
            if not idle:
                del self._idle[address]

    def _take(self, address: Address) -> asyncio.Transport | None:
        while (idle := self._idle.get(address)) is not None:
            transport = next(reversed(idle))
            self.forget(address, transport)
            if not transport.is_closing():
                return transport
        return None

    async def _connect(self, address: Address) -> Response:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, response = await loop.create_connection(
                    lambda: Response(self, address), address.host, address.port, ssl=_tls() if address.tls else None
                )
        except (OSError, UnicodeError) as error:  # also of the time, the name and the certificate
            raise Unreachable(f"no connection ({type(error).__name__})") from error
        return response


@functools.lru_cache(maxsize=1024)
def target_of(url: str) -> tuple[Address, str]:
    """Where a URL leads, and the request's first lines. Raises Unreachable where it leads nowhere."""
    try:
        parts = urlsplit(url)
        usual = {"http": 80, "https": 443}[parts.scheme]
        address = Address(parts.hostname or "", parts.port or usual, parts.scheme == "https")
        if not address.host or not _PLAIN.fullmatch(url):
            raise ValueError(url)
    except (ValueError, KeyError) as error:
        raise Unreachable("its address is no URL") from error
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    return address, f"POST {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}"


def _head(line: str, headers: Mapping[str, str], length: int) -> bytes:
    """Raises ValueError for a header that would break the line."""
    fields = [*(f"{name}: {value}" for name, value in headers.items()), f"Content-Length: {length}"]
    if any("\r" in field or "\n" in field or "\0" in field for field in fields):
        raise ValueError("a header must not contain a line break")
    return "\r\n".join((line, *fields, "\r\n")).encode("latin-1")
