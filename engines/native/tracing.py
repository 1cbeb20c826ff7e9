"""A trace of some steps of a running core: torch's timeline with the loop's phases, or the allocations of a GPU.

The trace is a clock: it takes the place of the pipeline's for as many steps as were asked, writes its file and puts the
old one back. What recording costs falls on these steps alone; the profiler's start and the writing of the file stop the
loop for some tenths of a second. No text, no token and no shape is recorded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.autograd.profiler import profile, record_function

from engines.native.ipc import Trace, Traced
from engines.native.step_clock import OUTSIDE, PHASES, SCHEDULE, StepClock

log = logging.getLogger(__name__)

MAX_ALLOCATIONS = 100_000
"""Events that a history of allocations keeps, the newest; a few KB each with their stacks."""


class Recorder(Protocol):
    def start(self) -> None: ...

    def enter(self, name: str) -> None:
        """A phase of the loop begins."""
        ...

    def leave(self) -> None:
        """The phase that was entered last ends."""
        ...

    def stop(self, file: Path) -> None:
        """End the recording and write it."""
        ...

    def drop(self) -> None:
        """End what still records, after a failure. Nothing is written."""
        ...


class Timeline:
    """Operations, kernels and the loop's phases, as Chrome's trace format has them.

    Of torch's two profilers the inner one: `torch.profiler` imports half of the compiler when it is first started, and
    the loop would stand still for seconds. Its operations are those of the thread that starts it, which is the core's.
    """

    def __init__(self) -> None:
        self._cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # torch's
        self._profile = profile(use_kineto=True, use_device="cuda" if self._cuda else None)
        self._span: Any = None

    def start(self) -> None:
        self._profile.__enter__()  # type: ignore[no-untyped-call] # torch's

    def enter(self, name: str) -> None:
        self._span = record_function(name)
        self._span.__enter__()

    def leave(self) -> None:
        self._span.__exit__(None, None, None)

    def stop(self, file: Path) -> None:
        if self._cuda:
            torch.cuda.synchronize()  # the last steps' kernels belong to it
        self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch's
        self._profile.export_chrome_trace(str(file))  # type: ignore[no-untyped-call] # torch's

    def drop(self) -> None:
        if torch._C._autograd._profiler_enabled():
            self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch's


class Allocations:
    """What the GPU's allocator holds and what it did meanwhile, as https://pytorch.org/memory_viz reads it."""

    def start(self) -> None:
        torch.cuda.memory._record_memory_history(max_entries=MAX_ALLOCATIONS, stacks="python")

    def enter(self, name: str) -> None:
        """The allocator's events carry stacks, which say the phase."""

    def leave(self) -> None:
        """Nothing was begun."""

    def stop(self, file: Path) -> None:
        try:
            torch.cuda.memory._dump_snapshot(str(file))  # type: ignore[no-untyped-call] # torch's
        finally:
            self.drop()

    def drop(self) -> None:
        torch.cuda.memory._record_memory_history(enabled=None)


def recorder_of(kind: str) -> Recorder:
    return Timeline() if kind == "timeline" else Allocations()


class TracingClock(StepClock):
    """Begins with the next step and ends with the `asked.steps`-th that is committed, or when its time is up."""

    def __init__(self, asked: Trace, recorder: Recorder, done: Callable[[Traced], None]) -> None:
        """`done` gets what became of it and puts the old clock back."""
        super().__init__()
        self._asked, self._recorder, self._done = asked, recorder, done
        self._until = time.monotonic() + asked.timeout
        self._steps = 0
        self._recording = self._open = self._over = False

    def enter(self, phase: int) -> None:
        super().enter(phase)
        if self._over:
            return
        try:
            self._follow(phase)
        except Exception as error:  # what is diagnosed must go on serving
            log.exception("the trace failed")
            self._end(Traced(self._steps, "trace_failed", f"{type(error).__name__}: {error}"))
            self._dropped()

    def take(self) -> tuple[float, ...]:
        self._steps += 1
        return super().take()

    def idle(self) -> None:
        if not self._over and time.monotonic() >= self._until:
            self.enter(OUTSIDE)

    def _follow(self, phase: int) -> None:
        late = time.monotonic() >= self._until
        if not self._recording and phase == SCHEDULE and not late:
            self._recorder.start()
            self._recording = True
        if not self._recording:
            if late:
                waited = f"no step ran within {self._asked.timeout:g} s; send requests meanwhile"
                self._end(Traced(0, "no_steps", waited))
            return
        if self._open:
            self._recorder.leave()
            self._open = False
        if phase < OUTSIDE:
            self._recorder.enter(PHASES[phase])
            self._open = True
        elif late or self._steps >= self._asked.steps:
            self._recorder.stop(Path(self._asked.file))
            self._end(Traced(self._steps))

    def _dropped(self) -> None:
        try:
            self._recorder.drop()
        except Exception:
            log.exception("the recording could not be ended; the engine serves on and may be slower until its restart")

    def _end(self, traced: Traced) -> None:
        self._over = True
        self._done(traced)
