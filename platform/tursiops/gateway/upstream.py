"""The engines' side: send, look at the first event, try another instance while nothing has left for the client."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from tursiops.gateway import metrics
from tursiops.gateway.config import Config
from tursiops.gateway.dialects import Dialect
from tursiops.gateway.engine_client import EngineClient, EngineError, Response
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.events import EventScanner, EventTooLarge, data_of, split
from tursiops.gateway.exchange import Exchange
from tursiops.gateway.failures import Failure, interpret, of_event, of_exception
from tursiops.gateway.loads import Loads
from tursiops.gateway.pick import PickRequest, pick
from tursiops.gateway.snapshot import InstanceEntry, Snapshot

log = structlog.get_logger()
_PEEK_BYTES = 65_536


class Opened:
    """An engine's answer that has begun well: a whole body, or a stream whose first events are in `head`."""

    def __init__(self, response: Response, head: bytes, scanner: EventScanner | None) -> None:
        self.response = response
        self.head = head
        self.scanner = scanner


class RetryBudget:
    """Retries may be a share of the requests of late, and a few more: otherwise they would multiply an outage."""

    def __init__(self, share: float, spare: float = 10.0) -> None:
        self._share = share
        self._spare = spare
        self._left = spare

    def earn(self) -> None:
        self._left = min(self._spare, self._left + self._share)

    def spend(self) -> bool:
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Upstream:
    def __init__(self, config: Config, loads: Loads, snapshot: Callable[[], Snapshot]) -> None:
        self._config = config
        self._loads = loads
        self._snapshot = snapshot
        self._client = EngineClient(config.connect_timeout)
        self._budget = RetryBudget(config.retry_share)

    async def close(self) -> None:
        self._client.close()

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Opened]:
        """An answer for `exchange` from some ready instance, closed with the block. Raises GatewayError."""
        tried: set[str] = set()
        self._budget.earn()
        async with AsyncExitStack() as stack:
            while True:
                instance = self._choose(exchange, tried)
                stack.enter_context(self._loads.running(instance.id))
                began = time.perf_counter()
                try:
                    opened = await self._attempt(exchange, instance, stack)
                    break
                except Failure as failure:
                    await stack.aclose()
                    await self._before_retry(exchange, instance, failure, tried)
                    exchange.engine_s += time.perf_counter() - began
            exchange.engine_s += time.perf_counter() - began
            self._loads.succeeded(instance.id)
            yield opened

    def _choose(self, exchange: Exchange, tried: set[str]) -> InstanceEntry:
        assert exchange.route is not None
        route = exchange.route
        decision = pick(PickRequest(route.team, route.name, frozenset(tried)), self._snapshot(), self._loads)
        exchange.reason = decision.reason
        if decision.instance is None:
            raise nothing_ready(exchange, self._snapshot())
        exchange.sent_to(decision.instance.id)
        return decision.instance

    async def _before_retry(
        self, exchange: Exchange, instance: InstanceEntry, failure: Failure, tried: set[str]
    ) -> None:
        """Wait, jittered, before the next attempt. Raises what the client gets where there is none."""
        if failure.blames_instance:
            self._loads.failed(instance.id)
        tell = log.warning if failure.blames_instance else log.debug  # a client's mistake is no news for operators
        tell("gateway.attempt_failed", request=exchange.request_id, instance=instance.id, reason=str(failure))
        tried.add(instance.id)
        done = not failure.retry or not exchange.may_retry or exchange.retries + 1 >= self._config.attempts
        if done or not self._budget.spend():
            raise failure.as_error()
        metrics.retries.labels(failure.kind).inc()
        exchange.retries += 1
        await asyncio.sleep(self._config.backoff * 2 ** (exchange.retries - 1) * random.uniform(0.5, 1.5))

    async def _attempt(self, exchange: Exchange, instance: InstanceEntry, stack: AsyncExitStack) -> Opened:
        """Raises Failure."""
        assert exchange.request is not None
        assert exchange.caller is not None
        request = exchange.request
        headers = {
            "Authorization": f"Bearer {instance.token}",
            "Content-Type": "application/json",
            "X-Request-Id": exchange.request_id,
            "X-Tursiops-Team": exchange.caller.team,  # engines share themselves out between teams
        }
        try:
            async with asyncio.timeout(self._config.first_event_timeout):
                response = await self._client.post(instance.url + request.endpoint.upstream, request.body, headers)
                stack.callback(response.close)
                if response.status >= 300:
                    raise interpret(response.status, await self._whole(response), response.headers)
                if request.stream:
                    return await self._peek(response, request.endpoint.dialect, keep_usage=request.wants_usage)
                return Opened(response, await self._whole(response), None)
        except TimeoutError:
            raise Failure(
                "timeout", 504, f"the engine sent nothing for {self._config.first_event_timeout:.0f} s", retry=False
            ) from None
        except EngineError as error:
            raise of_exception(error) from error

    async def _whole(self, response: Response) -> bytes:
        parts, size = [], 0
        while data := await response.read():
            parts.append(data)
            size += len(data)
            if size > self._config.answer_limit:
                raise Failure("too_large", 502, f"the engine's answer is over {self._config.answer_limit} bytes")
        return b"".join(parts)

    async def _peek(self, response: Response, dialect: Dialect, *, keep_usage: bool) -> Opened:
        """Hold the first events until one says something: an error up to there can still go elsewhere."""
        scanner = EventScanner(dialect, keep_usage=keep_usage, limit=self._config.event_limit)
        head = b""
        while len(head) < _PEEK_BYTES:
            data = await response.read()
            if not data:
                raise Failure("ended", 502, "the engine closed its answer before it began")
            try:
                head += scanner.feed(data)
            except EventTooLarge:
                raise Failure("too_large", 502, f"an event is over {self._config.event_limit} bytes") from None
            if scanner.seen.error is not None:
                raise of_event(scanner.seen.error)
            told = [event for event in split(head) if event[:1] != b":"]
            if scanner.seen.done or any(not dialect.says_nothing(data_of(event)) for event in told):
                break
        return Opened(response, head, scanner)


def nothing_ready(exchange: Exchange, snapshot: Snapshot) -> GatewayError:
    """503 with the route's own reason."""
    assert exchange.route is not None
    route = snapshot.by_name.get((exchange.route.team, exchange.route.name), exchange.route)
    stopped = route.desired == "stopped"
    reason = route.reason or ("It is stopped; start it again." if stopped else "No instance is ready yet.")
    return GatewayError(
        503,
        "model_stopped" if stopped else "model_not_ready",
        f"The model {route.name!r} can't answer now. {reason}",
        param="model",
        retry_after=30 if stopped else 5,
    )
