"""The gateway as an ASGI application: what is ours, what goes to web, and what lives as long as the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tursiops.gateway import metrics, passing_ws
from tursiops.gateway.asgi import Receive, Scope, Send, send_error, send_json, send_whole
from tursiops.gateway.callers import authenticate, usable
from tursiops.gateway.completions import Completions
from tursiops.gateway.config import Config
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.exchange import new_request_id
from tursiops.gateway.ledger import Ledger
from tursiops.gateway.limits import Limiter
from tursiops.gateway.passing import Passing, WebBroke
from tursiops.gateway.pick import ready_instances
from tursiops.gateway.request import ENDPOINTS
from tursiops.gateway.snapshot import RouteEntry
from tursiops.gateway.source import SnapshotSource
from tursiops.gateway.traffic import TrafficSink
from tursiops.gateway.usage import UsageSink

log = structlog.get_logger()


def new_redis(url: str) -> Redis:
    """Tries once: what it is asked for has a fallback. Time limits are the callers' (asyncio.timeout), because
    redis-py's own socket_timeout uses wait_for, which loses cancellations on Python 3.11."""
    return Redis.from_url(url, socket_connect_timeout=1, socket_timeout=None, retry=Retry(NoBackoff(), 0))


class Gateway:
    """Made before the loop runs; `start` and `stop` are called by the server's lifespan."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._redis = new_redis(self._config.redis_url)
        self._source = SnapshotSource(self._config, self._redis)
        self._limiter = Limiter(self._redis)
        ledger = Ledger(self._config.run_dir / "usage-open")
        self._sink = UsageSink(self._config, self._redis, ledger)
        self._traffic = TrafficSink(self._redis)
        self._completions = Completions(self._config, self._source, self._limiter, self._sink, ledger, self._traffic)
        self._passing = Passing(self._config)
        self._source.load_file()
        works = (self._source.watch, self._limiter.renew, self._sink.run, self._traffic.run, self._completions.sweep)
        for work in works:
            self._tasks.append(asyncio.create_task(_forever(work)))

    def snapshot_version(self) -> int:
        """Version that is served from now; -1 before there is one."""
        return self._source.current.version if self._source.current else -1

    async def stop(self) -> None:
        await self._completions.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sink.close()
        await self._passing.close()
        await self._redis.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await passing_ws.serve(self._passing.session, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        endpoint = ENDPOINTS.get(path)
        if endpoint is not None and scope["method"] == "POST":
            await self._completions.serve(scope, receive, send, endpoint)
        elif path.startswith("/v1/") or path == "/v1":
            await self._v1(scope, send, path)
        elif path == "/healthz":
            await self._health(send)
        elif path == "/metrics":
            metrics.snapshot_age.set(self._source.age())
            await send_whole(send, 200, metrics.render(), [(b"content-type", b"text/plain; version=0.0.4")])
        else:
            try:
                await self._passing.serve(scope, receive, send)
            except WebBroke:
                return

    async def _v1(self, scope: Scope, send: Send, path: str) -> None:
        """The small answers of /v1, and what it does not have."""
        request_id = [(b"x-request-id", new_request_id().encode())]
        try:
            if path == "/v1/models" or path.startswith("/v1/models/"):
                await send_json(send, 200, self._models(scope, path.removeprefix("/v1/models").lstrip("/")), request_id)
            elif path in ENDPOINTS:
                raise GatewayError(405, "method_not_allowed", f"{path} takes POST, not {scope['method']}.")
            else:
                known = ", ".join(["/v1/models", *ENDPOINTS])
                raise GatewayError(404, "unknown_path", f"There is no {path}. Available: {known}.")
        except GatewayError as error:
            await send_error(send, error, request_id)

    def _models(self, scope: Scope, name: str) -> object:
        """OpenAI's list, or one of it. Raises GatewayError."""
        if scope["method"] not in ("GET", "HEAD"):
            raise GatewayError(405, "method_not_allowed", f"/v1/models takes GET, not {scope['method']}.")
        snapshot = self._source.require()
        routes = usable(authenticate(scope, snapshot), snapshot)
        if not name:
            return {"object": "list", "data": [_model(route) for route in routes]}
        for route in routes:
            if route.name == name:
                return _model(route)
        raise GatewayError(404, "model_not_found", f"There is no model {name[:100]!r} for this key.", param="model")

    async def _health(self, send: Send) -> None:
        """200 as long as the process serves; what it serves from is told beside."""
        current = self._source.current
        content = {
            "status": "ok" if current else "no snapshot yet",
            "snapshot_version": current.version if current else None,
            "snapshot_age_s": round(self._source.age(), 1) if current else None,
        }
        await send_json(send, 200, content)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def _forever(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until cancelled. What it did not foresee is logged, and it begins again."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("gateway.background_failed", work=work.__qualname__)
        await asyncio.sleep(1)


def _model(route: RouteEntry) -> dict[str, object]:
    ready = len(ready_instances(route))
    return {
        "id": route.name,
        "object": "model",
        "created": route.created,
        "owned_by": "tursiops",
        "context_length": route.context_length or None,
        "ready": ready > 0,
        "reason": "" if ready else route.reason,
    }
