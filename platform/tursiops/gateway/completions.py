"""A model request from its first byte to its bill. The order of this file is the order of things."""

from __future__ import annotations

import asyncio
import time

import structlog

from tursiops.gateway import metrics
from tursiops.gateway.admission import Admission
from tursiops.gateway.asgi import JSON, ClientGone, Receive, Scope, Send, header, read_body, send_error, send_whole
from tursiops.gateway.buckets import Reservation
from tursiops.gateway.callers import authenticate, find_route
from tursiops.gateway.config import Config
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.estimate import Estimator
from tursiops.gateway.events import Seen
from tursiops.gateway.exchange import Exchange
from tursiops.gateway.ledger import INTERRUPTED, Ledger
from tursiops.gateway.limits import Limiter
from tursiops.gateway.loads import Loads
from tursiops.gateway.pick import ready_instances
from tursiops.gateway.relay import ClientStream, account
from tursiops.gateway.request import Endpoint, parse
from tursiops.gateway.source import SnapshotSource
from tursiops.gateway.traffic import TrafficSink
from tursiops.gateway.upstream import Opened, Upstream, nothing_ready
from tursiops.gateway.usage import UsageSink

log = structlog.get_logger()
_SWEEP_S = 2.0
_CLOSE_S = 2.0


class Completions:
    """Serves the endpoints that reach an engine. One task per request does the work; another watches its client."""

    def __init__(
        self,
        config: Config,
        source: SnapshotSource,
        limiter: Limiter,
        sink: UsageSink,
        ledger: Ledger,
        traffic: TrafficSink,
    ) -> None:
        self._config = config
        self._source = source
        self._limiter = limiter
        self._sink = sink
        self._ledger = ledger
        self._traffic = traffic
        self._loads = Loads(config.cooldown)
        self._admission = Admission(config, self._places)
        self._estimator = Estimator()
        self._upstream = Upstream(config, self._loads, source.require)
        self._running: dict[Exchange, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def serve(self, scope: Scope, receive: Receive, send: Send, endpoint: Endpoint) -> None:
        exchange = Exchange(may_retry=header(scope, b"x-tursiops-retry").lower() != "off")
        try:
            snapshot = self._source.require()
            exchange.caller = authenticate(scope, snapshot)
            body = await read_body(scope, receive, self._config.body_limit, self._config.client_timeout)
            exchange.request = parse(body, endpoint)
            route = find_route(exchange.caller, snapshot, exchange.request.model)
            tokens = self._estimator.total_tokens(exchange.request, route) if endpoint.billed else 0
            held = await self._limiter.reserve(exchange.caller, exchange.request_id, tokens)
        except ClientGone:
            return
        except GatewayError as error:
            metrics.refused.labels(error.code).inc()
            await send_error(send, error, exchange.headers(), endpoint.dialect.refusal(error))
            return
        exchange.route = route
        if exchange.caller.consents and exchange.caller.key and endpoint.generates:
            self._traffic.put(exchange.caller.team, exchange.caller.key, body)
        if endpoint.billed:
            exchange.prompt_estimate = self._estimator.prompt_tokens(exchange.request, route)
            exchange.slot = self._ledger.open(exchange.record())
        await self._attended(exchange, held, receive, send)

    async def _attended(self, exchange: Exchange, held: Reservation, receive: Receive, send: Send) -> None:
        """Run the work; cancel it as soon as its client leaves; bill it, once, however it ended."""
        metrics.in_flight.inc()
        work = asyncio.create_task(self._work(exchange, send))
        watch = asyncio.create_task(_left(receive))
        self._running[exchange] = work
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not exchange.answered:
                exchange.disconnected = True
                work.cancel()
            await asyncio.wait((work,))
            if not work.cancelled() and (error := work.exception()) is not None:
                exchange.status, exchange.error_code = 500, "internal"
                log.error("gateway.request_failed", request=exchange.request_id, exc_info=error)
        except asyncio.CancelledError:  # the server stops, and its time to drain is over
            exchange.stopped = True
            raise
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.wait((work,))  # it writes down what it has used
            del self._running[exchange]
            metrics.in_flight.dec()
            self._finish(exchange, held)

    async def _work(self, exchange: Exchange, send: Send) -> None:
        assert exchange.request is not None
        assert exchange.route is not None
        dialect = exchange.request.endpoint.dialect
        streams = exchange.request.stream
        stream = ClientStream(send, exchange, dialect, self._config.ping_every) if streams else None
        try:
            if not self._ready(exchange.route.deployment):
                exchange.reason = "no instance is ready"
                raise nothing_ready(exchange, self._source.require())
            asked = time.perf_counter()
            async with self._admission.place(exchange.route.deployment):
                exchange.queue_s = time.perf_counter() - asked
                async with self._upstream.open(exchange) as opened:
                    if stream is None:
                        await self._answer(exchange, opened, send)
                    else:
                        await self._stream(exchange, opened, stream)
        except GatewayError as error:
            exchange.failed(error)
            if stream is None:
                await send_error(send, error, exchange.headers(), dialect.refusal(error))
            else:
                await stream.fail(error)
        finally:
            if stream is not None:
                await stream.stop_pinging()

    async def _answer(self, exchange: Exchange, opened: Opened, send: Send) -> None:
        assert exchange.request is not None
        exchange.first_byte = time.perf_counter()
        exchange.status = opened.response.status
        seen = Seen()
        exchange.request.endpoint.dialect.read_whole(opened.head, seen)
        exchange.prompt_tokens, exchange.completion_tokens = seen.prompt_tokens, seen.completion_tokens
        exchange.cached_tokens, exchange.finish_reason = seen.cached_tokens, seen.finish_reason
        if not seen.has_usage:  # an engine that does not tell
            exchange.prompt_tokens = exchange.prompt_estimate
        kind = opened.response.headers.get("Content-Type")
        exchange.answered = True
        headers = [(b"content-type", kind.encode("latin-1")) if kind else JSON, *exchange.headers()]
        await send_whole(send, exchange.status, opened.head, headers)

    async def _stream(self, exchange: Exchange, opened: Opened, stream: ClientStream) -> None:
        assert opened.scanner is not None
        exchange.status = 200
        await stream.stop_pinging()
        try:
            await stream.relay(opened)
        finally:
            account(exchange, opened.scanner)

    def _finish(self, exchange: Exchange, held: Reservation) -> None:
        """The one place where a request is settled and billed."""
        assert exchange.request is not None
        assert exchange.route is not None
        if exchange.disconnected or exchange.broken == "client":
            exchange.disconnected, exchange.status, exchange.error_code = True, 499, "client_disconnected"
        elif exchange.stopped:
            exchange.status, exchange.error_code = 502, INTERRUPTED
        elif exchange.status == 200:
            self._estimator.learn(exchange.request, exchange.route, exchange.prompt_tokens)
        if (exchange.disconnected or exchange.stopped) and exchange.instance and not exchange.prompt_tokens:
            exchange.prompt_tokens = exchange.prompt_estimate  # an engine was at work on it
        task = asyncio.create_task(self._limiter.settle(held, exchange.used_tokens()))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        if exchange.slot is not None:
            self._sink.put(exchange.record(), exchange.slot)
        _measure(exchange)

    def _ready(self, deployment: str) -> int:
        snapshot = self._source.current
        route = snapshot.by_deployment.get(deployment) if snapshot else None
        return len(ready_instances(route)) if route else 0

    def _places(self, deployment: str) -> int:
        """Requests that may run at once. Where nothing is ready all are let in, to be told so."""
        return self._ready(deployment) * self._config.per_instance or 1_000_000

    async def sweep(self) -> None:
        """End what stands still: silent engines, clients that take nothing. Follow the snapshot."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.perf_counter()
            for exchange, work in list(self._running.items()):
                if exchange.waits_for_client and now - exchange.waits_for_client > self._config.client_timeout:
                    exchange.broken = "client"
                    work.cancel()
                elif exchange.waits_for_engine and now - exchange.waits_for_engine > self._config.idle_timeout:
                    exchange.broken = f"The engine sent nothing for {self._config.idle_timeout:.0f} s."
                    if exchange.close_engine is not None:
                        exchange.close_engine()
            self._admission.refresh()
            if self._source.current is not None:
                self._loads.forget(self._source.current.instance_ids)

    async def close(self) -> None:
        """When no request comes any more: what still runs has been cancelled, and is billed first."""
        end = time.monotonic() + _CLOSE_S
        while self._running and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self._closing:
            await asyncio.wait(self._closing, timeout=2)
        await self._upstream.close()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _measure(exchange: Exchange) -> None:
    assert exchange.route is not None
    model = metrics.label(exchange.route.team, exchange.route.name)
    now = time.perf_counter()
    metrics.requests.labels(model, str(exchange.status)).inc()
    metrics.tokens.labels(model, "prompt").inc(exchange.prompt_tokens)
    metrics.tokens.labels(model, "completion").inc(exchange.completion_tokens)
    metrics.request_seconds.labels(model).observe(now - exchange.started)
    metrics.queue_seconds.observe(exchange.queue_s)
    if exchange.first_byte:
        metrics.ttft_seconds.labels(model).observe(exchange.first_byte - exchange.started)
        metrics.overhead_seconds.observe(exchange.overhead_s())
    if exchange.disconnected:
        metrics.disconnects.labels(model).inc()
    elif exchange.error_code == "upstream_interrupted":
        metrics.interrupted.labels(model).inc()
