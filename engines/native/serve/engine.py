"""The API process's view of the core: streams of tokens by request id, and a core that comes back when it dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.api import Phase
from engines.native.ipc import (
    Add,
    End,
    Ending,
    FromCore,
    LoadFailed,
    Loading,
    MemoryFound,
    Ready,
    Shutdown,
    ToCore,
    Traced,
    Update,
)
from engines.native.request import Finish, SamplingParams, Timeouts
from engines.native.serve.admission import QueueDoor
from engines.native.serve.core_process import CoreProcess
from engines.native.serve.errors import ApiError
from engines.native.serve.metrics import Metrics
from engines.native.serve.questions import Questions
from engines.native.serve.stream import Stream

log = logging.getLogger(__name__)

MAX_RESTARTS = 3
RESTART_WINDOW_S = 300.0
STOP_GRACE_S = 5.0
"""What the core has to finish its step and leave."""
_BY_TEXT = (Finish.STOP, Finish.REPETITION)  # found here, whatever the core said meanwhile


class LoadError(Exception):
    """The core says that it can't serve this spec; starting it again will not help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class CoreLost(Exception):
    """The core died too often."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    max_queued: int  # requests that wait or run; more are refused with 503
    timeouts: Timeouts  # of a request that names none


@dataclass(slots=True)
class Status:
    """What /health and state.json say."""

    phase: Phase = Phase.LOADING
    progress: float = 0.0
    reason: str = "starting"


class Engine:
    """Owns the core process and all streams. `run` is its life; everything else is called on the same event loop."""

    def __init__(
        self,
        make_core: Callable[[], CoreProcess],
        limits: EngineLimits,
        metrics: Metrics,
        on_status: Callable[[Status], None] = lambda _: None,
        backoff_s: float = 1.0,
    ) -> None:
        self._make_core, self._limits, self.metrics, self._on_status = make_core, limits, metrics, on_status
        self._backoff_s = backoff_s
        self.status = Status()
        self.ready: Ready | None = None
        self.core: CoreProcess | None = None
        self.questions = Questions(self._send)
        self._streams: dict[int, Stream] = {}
        self._door = QueueDoor(limits.max_queued)
        self._ids = itertools.count(1)
        self._stopping = False
        self._heard_at = 0.0  # time.monotonic() of the core's last message, or of the last moment without work

    @property
    def in_flight(self) -> int:
        return len(self._streams)

    @property
    def max_queued(self) -> int:
        """Requests that wait or run at once, at most."""
        return self._limits.max_queued

    @property
    def speculation(self) -> dict[str, Any]:
        """What the core says of it in its facts: mode (option `speculation`, as effective) and proposers, the names by
        the numbers in `Update.sources`. Empty of a core that does not speculate."""
        facts: dict[str, Any] = {} if self.ready is None else self.ready.facts.get("speculation") or {}
        return facts

    @property
    def proposers(self) -> tuple[str, ...]:
        return tuple(self.speculation.get("proposers", ()))

    # Requests

    def submit(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        arrived: asyncio.Event,
        *,
        priority: int,
        salt: str,
        timeouts: Timeouts = Timeouts(),
        tenant: str = "",
    ) -> Stream:
        """Hand a request to the core. Every stream must be closed. Raises ApiError 503 when there is no room, 429 where
        the tenant has its share of it."""
        self.require_ready()
        assert self.core is not None
        stream = Stream(next(self._ids), prompt_ids, params, arrived)
        try:
            self._door.enter(stream.id, tenant)
        except ApiError as error:
            self.metrics.refused.labels(error.code).inc()
            raise
        if not self._streams:
            self._heard_at = time.monotonic()
        self._streams[stream.id] = stream
        token_ids = np.array(prompt_ids, np.int32).tobytes()
        limits = timeouts.over(self._limits.timeouts)
        own = f"{tenant}\0{salt}" if tenant else salt  # what is kept of one tenant's text, no other finds
        self.core.send(Add(stream.id, token_ids, params, priority, own, limits, tenant))
        return stream

    def require_ready(self) -> Ready:
        """Raises ApiError 503 unless requests are served now."""
        if self.status.phase is not Phase.READY or self.ready is None:
            message = f"the engine is {self.status.phase}: {self.status.reason}"
            raise ApiError(503, message, code=f"engine_{self.status.phase}", retry_after=2)
        return self.ready

    def close(self, stream: Stream, finish: Finish = Finish.ABORT) -> None:
        """The reader is done with it: ended by the core, by a stop string (`stop`), or left by its client (`abort`)."""
        if self._streams.pop(stream.id, None) is None:
            return
        self._door.leave(stream.id)
        if stream.ending is not None:
            self.metrics.ended(stream, finish if finish in _BY_TEXT else stream.ending.finish)
            return
        self.metrics.ended(stream, finish)
        if self.core is not None:
            self.core.send(End([stream.id], finish))

    def fail_all(self, finish: Finish, message: str) -> None:
        for stream in list(self._streams.values()):
            stream.end(Ending(stream.id, finish, message))

    def _send(self, message: ToCore) -> None:
        """To a core that died it is dropped; its end is told to who waits."""
        if self.core is not None:
            self.core.send(message)

    # The core's life

    def set_status(self, phase: Phase, reason: str = "", progress: float = 0.0) -> None:
        self.status = Status(phase, progress, reason)
        self._on_status(self.status)

    async def run(self) -> None:
        """Until `stop`. Raises LoadError, or CoreLost after too many deaths."""
        deaths: list[float] = []
        while not self._stopping:
            ended = await self._one_life()
            if self._stopping:
                return
            now = time.monotonic()
            deaths = [at for at in deaths if now - at < RESTART_WINDOW_S] + [now]
            reason = f"the engine's core {ended}"
            log.error("%s; %d requests end with an error", reason, len(self._streams))
            self.ready = None
            self.metrics.core_gone()
            self.questions.lost(f"{reason}; ask again when it serves")
            self.set_status(Phase.FAILED, reason)
            self.fail_all(Finish.ERROR, f"{reason}; the request was lost")
            if len(deaths) > MAX_RESTARTS:
                raise CoreLost(f"{reason}, {len(deaths)} times within {RESTART_WINDOW_S:.0f} s")
            await asyncio.sleep(self._backoff_s * 2 ** (len(deaths) - 1))
            self.metrics.restarts.inc()
            self.set_status(Phase.LOADING, f"{reason}; starting it again")

    async def _one_life(self) -> str:
        """Start a core and take in what it says until it is dead. Returns how it ended."""
        self.core = core = self._make_core()
        try:
            await core.start()
            async for message in core.messages():
                self._take(message)
            return core.last_words()
        finally:
            self.core = None
            await core.close()

    def stop(self) -> None:
        """Ask the core to leave; `run` returns when it has. One that loads, or stands still, is killed."""
        self._stopping = True
        core = self.core
        if core is None:
            return
        if self.ready is None:
            core.kill()
            return
        core.send(Shutdown())
        asyncio.get_running_loop().call_later(STOP_GRACE_S, core.kill)

    async def watch(self, stall_s: float) -> None:
        """Kill a core that has requests and says nothing for `stall_s`, so that it is started again. For ever."""
        while stall_s:
            await asyncio.sleep(min(5.0, stall_s / 4))
            silent = time.monotonic() - self._heard_at
            if self._streams and self.core is not None and silent > stall_s:
                log.error("the core has said nothing for %.0f s with %d requests in it", silent, len(self._streams))
                self._heard_at = time.monotonic()
                self.core.kill()

    def _take(self, message: FromCore) -> None:
        self._heard_at = time.monotonic()
        match message:
            case Update():
                self._deliver(message)
            case Traced() | MemoryFound():
                self.questions.answer(message)
            case Loading():
                self.set_status(Phase.LOADING, message.text, message.progress)
            case Ready():
                self.ready = message
                self.metrics.core_ready(message)
                if not self._stopping:
                    self.set_status(Phase.READY, "", 1.0)
            case LoadFailed():
                raise LoadError(message.code, message.message)

    def _deliver(self, update: Update) -> None:
        now = time.monotonic()
        streams = self._streams
        self.metrics.update(update)
        for request_id, cached in update.started:
            if (stream := streams.get(request_id)) is not None:
                stream.cached_tokens = cached
                self.metrics.started(stream, cached)
        for scored in update.prompt_logprobs:
            if (stream := streams.get(scored.id)) is not None:
                stream.prompt_logprobs.append(scored)
        ids = np.frombuffer(update.ids, np.int64).tolist()
        tokens = np.frombuffer(update.tokens, np.int32).tolist()
        logprobs = np.frombuffer(update.logprobs, np.float32).tolist() if update.logprobs else None
        sources = np.frombuffer(update.sources, np.int8).tolist() if update.sources else None
        for index, request_id in enumerate(ids):
            if (stream := streams.get(request_id)) is not None:
                asked = logprobs is not None and stream.params.logprobs >= 0
                logprob = logprobs[index] if asked and logprobs is not None else None
                source = -1 if sources is None else sources[index]
                stream.feed(tokens[index], logprob, update.top.get(index), now, source)
        for ending in update.endings:
            if (stream := streams.get(ending.id)) is not None:
                stream.end(ending)
        if update.phases:
            self.metrics.steps.step(update.phases, time.monotonic() - now)
