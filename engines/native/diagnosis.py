"""What operators ask of a running core: a trace of its next steps, and where its memory is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from engines.native.ipc import MemoryAsked, MemoryFound, Trace, Traced
from engines.native.pipeline import Pipeline

log = logging.getLogger(__name__)


class Diagnosis:
    """One trace at a time. Owned by the core; its answers go out by `send`."""

    def __init__(
        self,
        pipeline: Pipeline,
        send: Callable[[Traced | MemoryFound], None],
        memory: Callable[[], dict[str, Any]] | None,
    ) -> None:
        """memory: `engines.native.memory_table.table` of the runner; None where it can't be told."""
        self._pipeline, self._send, self._memory = pipeline, send, memory
        self._clock = pipeline.clock

    def take(self, message: Trace | MemoryAsked) -> None:
        """Answers at once, but for a trace that runs."""
        try:
            if isinstance(message, Trace):
                self._trace(message)
            else:
                self._send(self._table())
        except Exception as error:  # what is diagnosed must go on serving
            log.exception("%s failed", type(message).__name__)
            said = f"{type(error).__name__}: {error}"
            refused = Traced(0, "trace_failed", said) if isinstance(message, Trace) else MemoryFound({}, "failed", said)
            self._send(refused)

    def _table(self) -> MemoryFound:
        if self._memory is None:
            return MemoryFound({}, "no_memory_table", "this core can't say where its memory is")
        return MemoryFound(self._memory())

    def _trace(self, asked: Trace) -> None:
        from engines.native import tracing  # torch comes with it, which a core has and its tests need not

        if self._pipeline.clock is not self._clock:
            self._send(Traced(0, "trace_running", "another trace runs; wait for its end"))
            return
        recorder = tracing.recorder_of(asked.kind)
        self._pipeline.clock = tracing.TracingClock(asked, recorder, self._traced)

    def _traced(self, traced: Traced) -> None:
        self._pipeline.clock = self._clock
        self._send(traced)
