"""The client's side of a streamed answer: headers, pings while the engine is silent, bytes, and how it may end."""

from __future__ import annotations

import asyncio
import time

from tursiops.gateway.asgi import Send, send_error
from tursiops.gateway.dialects import Dialect
from tursiops.gateway.engine_client import EngineError
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.events import PING, EventScanner, EventTooLarge
from tursiops.gateway.exchange import Exchange
from tursiops.gateway.upstream import Opened

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ClientStream:
    """Sends an event stream. Its headers leave with the first bytes, be they a ping or the answer."""

    def __init__(self, send: Send, exchange: Exchange, dialect: Dialect, ping_every: float) -> None:
        self._send = send
        self._exchange = exchange
        self._dialect = dialect
        self._ping_every = ping_every
        self._pinging: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(ping_every, self._begin_to_ping)

    def _begin_to_ping(self) -> None:
        self._pinging = asyncio.create_task(self._ping())

    async def _ping(self) -> None:
        """Keeps proxies and people patient. Status 200 has left then; the answer may still come from elsewhere."""
        while True:
            await self._body(PING)
            await asyncio.sleep(self._ping_every)

    async def stop_pinging(self) -> None:
        self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()
            await asyncio.wait([self._pinging])
            self._pinging = None

    async def _body(self, data: bytes, more: bool = True) -> None:
        exchange = self._exchange
        begun = exchange.pinged or exchange.first_byte > 0
        exchange.waits_for_client = time.perf_counter()
        if data is PING:
            exchange.pinged = True
        elif not exchange.first_byte:
            exchange.first_byte = exchange.waits_for_client
        if not begun:
            headers = [*_STREAM_HEADERS, *exchange.headers()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        exchange.waits_for_client = 0.0

    async def relay(self, opened: Opened) -> None:
        """Pass the answer on to its end. Raises GatewayError if it breaks off after its first byte."""
        exchange, scanner, slot = self._exchange, opened.scanner, self._exchange.slot
        assert scanner is not None
        assert slot is not None
        exchange.close_engine = opened.response.close
        seen, prompt_estimate, silent = scanner.seen, exchange.prompt_estimate, exchange.silent_events()
        slot.passed(exchange.generated(seen.events), prompt_estimate)
        await self._body(opened.head)
        read, feed, passed, send, clock = opened.response.read, scanner.feed, slot.passed, self._send, time.perf_counter
        while True:  # once a token: what can be done before is
            exchange.waits_for_engine = clock()
            try:
                data = await read()
            except EngineError as error:
                raise _broken(exchange, str(error)) from error
            exchange.waits_for_engine = 0.0
            if not data:
                break
            try:
                out = feed(data)
            except EventTooLarge:
                raise _broken(exchange, "an event is too long") from None
            if out:
                passed(seen.events - silent if seen.events > silent else 0, prompt_estimate)
                exchange.waits_for_client = clock()
                await send({"type": "http.response.body", "body": out, "more_body": True})
                exchange.waits_for_client = 0.0
        if not scanner.seen.done and scanner.seen.error is None:
            raise _broken(exchange, f"it ended without {self._dialect.ending}")
        exchange.answered = True
        await self._body(b"", more=False)

    async def fail(self, error: GatewayError) -> None:
        """Tell the client: by status where nothing has left, else by a last event with no [DONE] after it."""
        await self.stop_pinging()
        self._exchange.answered = True
        if not self._exchange.pinged and not self._exchange.first_byte:
            await send_error(self._send, error, self._exchange.headers(), self._dialect.refusal(error))
        else:
            await self._body(self._dialect.error_event(error), more=False)


def _broken(exchange: Exchange, why: str) -> GatewayError:
    text = exchange.broken or f"The connection to the engine broke ({why})."
    return GatewayError(
        502, "upstream_interrupted", f"The answer broke off after it had begun. {text} Send the request again."
    )


def account(exchange: Exchange, scanner: EventScanner) -> None:
    """Write what a stream has used into `exchange`: the engine's own usage, else what has gone by."""
    seen = scanner.seen
    exchange.finish_reason = seen.finish_reason
    if seen.has_usage:
        exchange.prompt_tokens = seen.prompt_tokens
        exchange.completion_tokens = seen.completion_tokens
        exchange.cached_tokens = seen.cached_tokens
    else:
        exchange.prompt_tokens = seen.prompt_tokens or exchange.prompt_estimate
        exchange.completion_tokens = exchange.generated(seen.events)
    if seen.error is not None:
        exchange.status = 502
        exchange.error_code = str(seen.error.get("code") or "upstream_error")
