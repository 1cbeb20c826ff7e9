"""The life of an instance: bind, load, serve, drain, stop; each phase written to state.json before it is acted on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time

import psutil
from aiohttp import web

from engines.api import EngineState, LaunchSpec, Local, Phase, Role, RunDir
from engines.native.loader.errors import BadModel
from engines.native.pooling.files import open_any
from engines.native.request import Finish
from engines.native.serve import http_log
from engines.native.serve.app import Api
from engines.native.serve.core_process import CORE_MODULE, CoreProcess
from engines.native.serve.engine import CoreLost, Engine, EngineLimits, LoadError, Status
from engines.native.serve.metrics import Metrics
from engines.native.serve.model import ServedModel, load
from engines.native.serve.options import ServeOptions, read_options
from engines.native.serve.pooling import PoolingEngine

log = logging.getLogger(__name__)

PROGRESS_STEP = 0.02
"""Share of loading between two writes of state.json."""


class StateFile:
    """Writes state.json at each change of phase, and at steps of progress."""

    def __init__(self, run_dir: RunDir, spec: LaunchSpec, local: Local) -> None:
        self._run_dir, self._spec, self._local = run_dir, spec, local
        self._started = time.time()
        self._process_start = psutil.Process().create_time()
        self._last: EngineState | None = None
        self.port = 0
        self.facts: dict[str, object] = {}

    def write(self, phase: Phase, reason: str = "", progress: float = 0.0, error_code: str = "") -> None:
        last = self._last
        same = last is not None and (last.phase, last.reason, last.port) == (phase, reason, self.port)
        if same and last is not None and 0 <= progress - last.progress < PROGRESS_STEP:
            return
        self._last = EngineState(
            instance_id=self._spec.instance_id,
            pid=os.getpid(),
            pid_start_time=self._process_start,
            epoch=self._local.epoch,
            phase=phase,
            host=self._local.host,
            port=self.port,
            progress=progress,
            reason=reason,
            error_code=error_code,
            started_at=self._started,
            updated_at=time.time(),
            facts=self.facts,
        )
        self._run_dir.write_state(self._last)


class StartError(Exception):
    """The instance can't serve this spec."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Instance:
    def __init__(
        self, run_dir: RunDir, stop: asyncio.Event, core: CoreProcess | None = None, core_module: str = CORE_MODULE
    ) -> None:
        """`stop` ends it. `core`: one that loads already; its owner closes it, too, where it was never needed."""
        self._run_dir, self._stop, self._core, self._core_module = run_dir, stop, core, core_module
        self.spec, self.local = run_dir.read_spec()
        self._state = StateFile(run_dir, self.spec, self.local)
        self._metrics = Metrics()

    async def serve(self) -> int:
        """Until told to stop, or a failure. Returns the exit status."""
        self._state.write(Phase.LOADING, "starting")
        try:
            options, model, listener = await self._prepare()
            await self._run(options, model, listener)
        except (StartError, LoadError) as error:
            return self._failed(error.code, error.message)
        except BadModel as error:
            return self._failed(error.code, f"{error.message}; {error.hint}" if error.hint else error.message)
        except CoreLost as error:
            return self._failed("core_lost", str(error))
        except Exception as error:
            log.exception("the instance failed")
            return self._failed("internal", f"{type(error).__name__}: {error}")
        self._state.write(Phase.STOPPED, "stopped")
        return 0

    def _failed(self, code: str, reason: str) -> int:
        log.error("%s: %s", code, reason)
        self._state.write(Phase.FAILED, reason, error_code=code)
        return 1

    async def _prepare(self) -> tuple[ServeOptions, ServedModel, socket.socket]:
        if not self.local.token:
            raise StartError("bad_spec", "spec.json has no token; every request must carry one")
        if self.spec.role is not Role.UNIFIED:
            raise StartError("bad_spec", f"role is {self.spec.role}; the native engine serves unified instances only")
        try:
            options = read_options(self.spec.options)
        except ValueError as error:
            raise StartError("bad_spec", str(error)) from error
        listener = self._bind()
        files = await asyncio.to_thread(open_any, self.spec.format, self.local.paths)
        try:
            model = await asyncio.to_thread(
                load,
                self.spec.served_name,
                files,
                tool_parser=options.tool_parser,
                reasoning_parser=options.reasoning_parser,
            )
        except ValueError as error:
            raise StartError("bad_template", str(error)) from error
        return options, model, listener

    def _bind(self) -> socket.socket:
        """Bound before the model loads, so that the port is known and /health answers meanwhile."""
        host, port = self.local.host, self.local.port
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise StartError("port_in_use", f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._state.port = listener.getsockname()[1]
        return listener

    async def _run(self, options: ServeOptions, model: ServedModel, listener: socket.socket) -> None:
        limits = EngineLimits(options.max_queued, options.timeouts)
        kind = PoolingEngine if model.pooling is not None else Engine
        engine = kind(self._make_core, limits, self._metrics, lambda status: self._on_status(engine, status))
        api = Api(engine, model, self.local.token, max_body_bytes=options.max_body_bytes)
        http_log.quieten()
        runner = web.AppRunner(api.app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.SockSite(runner, listener, backlog=1024).start()
        self._state.write(Phase.LOADING, "loading the model", 0.0)
        life = asyncio.create_task(engine.run())
        watches = [asyncio.create_task(api.slow_readers.run()), asyncio.create_task(engine.watch(options.stall_s))]
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((life, stop), return_when=asyncio.FIRST_COMPLETED)
            if not life.done():
                await self._drain(engine, options.drain_s)
            await life  # raises what ended it
        finally:
            for task in (*watches, stop):
                task.cancel()
            await runner.cleanup()

    def _make_core(self) -> CoreProcess:
        first, self._core = self._core, None
        return first or CoreProcess(self._run_dir.path, self._core_module)

    def _on_status(self, engine: Engine, status: Status) -> None:
        if engine.ready is not None:
            self._state.facts = engine.ready.facts
        self._state.write(status.phase, status.reason, status.progress)

    async def _drain(self, engine: Engine, drain_s: float) -> None:
        """No new requests; running ones finish within `drain_s`, the rest end with an error their clients see."""
        engine.set_status(Phase.DRAINING, "stopping; running requests finish first")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while engine.in_flight:
                    await asyncio.sleep(0.05)
        if engine.in_flight:
            log.warning("%d requests did not finish within %.0f s", engine.in_flight, drain_s)
            engine.fail_all(Finish.ABORT, f"the engine stopped; the request did not finish within {drain_s:.0f} s")
            await asyncio.sleep(0.2)  # their last events go out
        engine.stop()
