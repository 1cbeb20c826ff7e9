"""Server-sent events to one client, and the watch over clients that do not read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

import orjson
from aiohttp import web

from engines.native.serve.errors import ApiError
from engines.native.serve.generate import Delta

log = logging.getLogger(__name__)

SLOW_READER_S = 30.0
"""How long a client may leave a full send buffer unread before its request is aborted."""

_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Events(Protocol):
    """What the pieces of a request's answers become on the wire, in one API's shape. One per request.

    named: each event also names its type in a line of its own, as some APIs want; tail: bytes after the last event.
    """

    @property
    def named(self) -> bool: ...

    @property
    def tail(self) -> bytes: ...

    def of(self, delta: Delta) -> Sequence[dict[str, Any] | bytes]:
        """bytes: JSON already."""
        ...

    def last(self) -> list[dict[str, Any]]: ...

    def error(self, error: ApiError) -> dict[str, Any]:
        """The last event of a stream that broke."""
        ...


class EventStream:
    """Opened with the first event, so that an error before it is still an ordinary response. `send` waits while the
    client's buffer is full; meanwhile tokens gather in the request's own streams, bounded by its max_tokens."""

    def __init__(self, request: web.Request, watch: SlowReaders, *, named: bool = False) -> None:
        self._request, self._watch, self._named = request, watch, named
        self.response: web.StreamResponse | None = None

    async def send(self, *payloads: dict[str, Any] | bytes) -> None:
        """Several events go in one write."""
        await self._write(b"".join(map(self._event, payloads)))

    def _event(self, payload: dict[str, Any] | bytes) -> bytes:
        if isinstance(payload, bytes):
            return b"data: " + payload + b"\n\n"
        data = b"data: " + orjson.dumps(payload) + b"\n\n"
        return b"event: " + payload["type"].encode() + b"\n" + data if self._named else data

    async def done(self, tail: bytes = b"data: [DONE]\n\n") -> web.StreamResponse:
        if tail:
            await self._write(tail)
        return await self._end()

    async def fail(self, payload: dict[str, Any]) -> web.StreamResponse:
        """The last event of a stream that broke; no [DONE] comes after it."""
        await self.send(payload)
        return await self._end()

    async def _write(self, data: bytes) -> None:
        if self.response is None:
            self.response = web.StreamResponse(headers=_HEADERS)
            await self.response.prepare(self._request)
        with self._watch.waiting(self._request.transport):
            await self.response.write(data)

    async def _end(self) -> web.StreamResponse:
        assert self.response is not None
        await self.response.write_eof()
        return self.response


class SlowReaders:
    """Cuts the connections of clients that leave their send buffer full for too long; that aborts their requests.
    One per process, looks once a second."""

    def __init__(self, limit_s: float = SLOW_READER_S) -> None:
        self._limit_s = limit_s
        self._blocked: dict[asyncio.Transport, float] = {}

    def waiting(self, transport: asyncio.Transport | None) -> _Waiting:
        return _Waiting(self._blocked, transport)

    async def run(self) -> None:
        """For ever; cancel it at the end of the process."""
        while True:
            await asyncio.sleep(min(1.0, self._limit_s))
            oldest = time.monotonic() - self._limit_s
            for transport in [transport for transport, since in self._blocked.items() if since < oldest]:
                log.warning("a client has not read for %.0f s; its request is aborted", self._limit_s)
                transport.abort()


class _Waiting:
    """Notes that a client is being written to. A class, as this runs for every token."""

    __slots__ = ("_blocked", "_transport")

    def __init__(self, blocked: dict[asyncio.Transport, float], transport: asyncio.Transport | None) -> None:
        self._blocked, self._transport = blocked, transport

    def __enter__(self) -> None:
        if self._transport is not None:
            self._blocked[self._transport] = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if self._transport is not None:
            self._blocked.pop(self._transport, None)
