"""What operators ask of a running instance: /debug/trace, /debug/memory, /debug/memory/snapshot, /debug/speculation.

Behind the instance's own token, which the platform has and no client: the gateway passes nothing but /v1.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import orjson
import psutil
from aiohttp import web

from engines.native.ipc import Trace
from engines.native.serve import validate
from engines.native.serve.embeddings import ReadBody
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError, invalid
from engines.native.serve.model import ServedModel

log = logging.getLogger(__name__)

STEPS = 16
MAX_STEPS = 200
"""Of one trace: a step of a small model on a CPU is about 1,000 events, 150 KB before compression."""
TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 120.0
GRACE_S = 120.0
"""What the core has for its last step and the writing of the file, beyond the time-out."""
MEMORY_S = 30.0
"""A core in a long step answers after it."""
_STATUS = {"no_steps": 409, "trace_running": 409}


@dataclass(frozen=True, slots=True)
class Recorded:
    data: bytes
    steps: int


class DebugApi:
    """Handlers of one instance."""

    def __init__(self, engine: Engine, model: ServedModel, read_body: ReadBody) -> None:
        self._engine, self._model, self._body = engine, model, read_body
        self._works: set[asyncio.Task[Recorded]] = set()  # the loop itself keeps no hold of them

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/debug/trace", self._trace),
            web.get("/debug/memory", self._memory),
            web.post("/debug/memory/snapshot", self._snapshot),
            web.get("/debug/speculation", self._speculation),
        ]

    async def _trace(self, request: web.Request) -> web.Response:
        self._require_steps()
        recorded = await self._record("timeline", await self._body(request))
        data = await asyncio.to_thread(gzip.compress, recorded.data, 5)
        return _file(data, "application/gzip", f"trace-{self._model.name}.json.gz", recorded.steps)

    async def _snapshot(self, request: web.Request) -> web.Response:
        self._require_steps()
        device = str(self._engine.require_ready().facts.get("device"))
        if not device.startswith("cuda"):
            message = (
                f"a memory snapshot is one of a GPU's allocator, and this engine runs on {device!r}; GET /debug/memory "
                "says where its memory is"
            )
            raise ApiError(400, message, code="no_gpu")
        recorded = await self._record("allocations", await self._body(request))
        return _file(recorded.data, "application/octet-stream", f"memory-{self._model.name}.pickle", recorded.steps)

    async def _memory(self, _: web.Request) -> web.Response:
        self._require_steps()
        self._engine.require_ready()
        answer = await self._engine.questions.memory(MEMORY_S)
        if answer.code:
            raise ApiError(500, answer.message, code=answer.code)
        process = {**answer.found["process"], "api_resident": psutil.Process().memory_info().rss}
        body = orjson.dumps({**answer.found, "process": process})
        return web.Response(body=body, content_type="application/json")

    async def _speculation(self, _: web.Request) -> web.Response:
        """Mode and proposers as effective, and figures (docs/speculation.md): null where nothing speculates."""
        self._require_steps()
        self._engine.require_ready()
        facts, seen = self._engine.speculation, self._engine.metrics.speculation
        told = {
            "mode": facts.get("mode", "off"),
            "proposers": self._engine.proposers,
            "since_start": None if seen is None else msgspec.to_builtins(seen.since_start),
            "recent": None if seen is None else msgspec.to_builtins(seen.recent),
        }
        return web.Response(body=orjson.dumps(told), content_type="application/json")

    def _require_steps(self) -> None:
        if self._model.pooling is not None:
            message = "this engine serves a pooling model, whose core has no steps and no KV cache to look into"
            raise ApiError(400, message, code="wrong_task")

    async def _record(self, kind: str, body: validate.Body) -> Recorded:
        """What the core records goes on if its client leaves, and is thrown away then."""
        for name in body:
            if name not in ("steps", "timeout"):
                raise invalid(name, f"{name} is not known here; `steps` and `timeout` are", "unknown_field")
        steps = validate.integer(body, "steps", STEPS, 1, MAX_STEPS)
        timeout = validate.number(body, "timeout", TIMEOUT_S, 0.1, MAX_TIMEOUT_S)
        self._engine.require_ready()
        work = asyncio.create_task(self._work(kind, steps, timeout))
        self._works.add(work)
        work.add_done_callback(self._ended)
        return await asyncio.shield(work)

    async def _work(self, kind: str, steps: int, timeout: float) -> Recorded:
        with tempfile.TemporaryDirectory(prefix="ts-trace-") as folder:  # nobody else's to read
            file = Path(folder) / "recorded"
            traced = await self._engine.questions.trace(Trace(kind, steps, timeout, str(file)), timeout + GRACE_S)
            if traced.code:
                raise ApiError(_STATUS.get(traced.code, 500), traced.message, code=traced.code)
            return Recorded(await asyncio.to_thread(file.read_bytes), traced.steps)

    def _ended(self, work: asyncio.Task[Recorded]) -> None:
        self._works.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.info("no trace: %s", error)  # looked at, also where no client waits any more


def _file(data: bytes, kind: str, name: str, steps: int) -> web.Response:
    safe = "".join(character if character.isalnum() or character in ".-_" else "_" for character in name)
    safe = safe.encode("ascii", "replace").decode().replace("?", "_")
    headers = {"Content-Disposition": f'attachment; filename="{safe}"', "x-tursiops-steps": str(steps)}
    return web.Response(body=data, content_type=kind, headers=headers)
