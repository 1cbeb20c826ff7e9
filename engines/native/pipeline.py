"""Scheduler and runner in step: the next pass is launched before the tokens of the last are read.

A step goes through plan → launch → (it runs) → wait → commit. With a runner of depth 1 these follow each other; with
depth 2 step n + 1 is planned and launched while step n runs, so that a GPU never waits for the host. Where grammars
must see step n's tokens before step n + 1 draws, its layers run meanwhile, and its draw is launched after the commit.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass

from engines.native.draft import Step
from engines.native.scheduler import Scheduler
from engines.native.step import Pending, Runner, StepOutput, TokenMasks
from engines.native.step_clock import LAUNCH, SCHEDULE, StepClock

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Flight:
    """A launched step, to be committed in order of launch. undrawn: its draw waits for the commit of the one before."""

    step: Step
    pending: Pending
    undrawn: bool = False


@dataclass(slots=True)
class _Failed:
    """A step that could not be launched: it says so when its turn comes."""

    error: Exception

    def draw(self, masks: TokenMasks | None) -> None:
        """There is nothing to draw from."""

    def wait(self) -> StepOutput:
        raise self.error


class Pipeline:
    def __init__(self, runner: Runner, scheduler: Scheduler) -> None:
        self._runner, self._scheduler = runner, scheduler
        self._flights: deque[Flight] = deque()
        self.clock = StepClock()

    def turn(self, now: float) -> Flight | None:
        """Launch the next step if there is one. What the last turn returned has been committed. Returns the oldest
        step on its way if it must be waited for and committed before another can be launched, else None. `now`:
        time.monotonic(), s."""
        newest = self._flights[-1] if self._flights else None
        if newest is not None and newest.undrawn:
            if len(self._flights) > 1:
                return self._flights.popleft()
            self._draw(newest)
        self.clock.enter(SCHEDULE)
        failed = bool(self._flights) and isinstance(self._flights[-1].pending, _Failed)
        step = None if failed else self._scheduler.plan(now)  # what follows a failed step would build on nothing
        if step is not None:
            self.clock.enter(LAUNCH)
            self._flights.append(Flight(step, self._launch(step), undrawn=step.plan.late))
            if self._scheduler.speculator is not None:
                self._scheduler.speculator.meanwhile(step.plan.tokens)
        full = len(self._flights) >= self._runner.depth or (step is not None and step.plan.late)
        if self._flights and (step is None or full):
            return self._flights.popleft()
        return None

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    def flush(self) -> None:
        """Carry out copies to the host that no step has taken along. While nothing is on its way."""
        scheduler = self._scheduler
        step = scheduler.launched
        copies, _ = scheduler.host.departures(scheduler.pool, step, idle=True)
        if copies:
            try:
                self._runner.swap_out(copies)
                self._runner.synchronize()
            except RuntimeError as error:  # of the device or its memory; a step that needs them says so
                log.warning("KV blocks were not copied to the host: %s", error)
                scheduler.host.failed(copies, [], step)
        scheduler.host.settle(step)

    def _draw(self, flight: Flight) -> None:
        """All steps before it are committed: its grammars have seen every token."""
        self.clock.enter(LAUNCH)
        flight.undrawn = False
        try:
            flight.pending.draw(self._scheduler.masks(flight.step.plan))
        except Exception as error:  # as in `_launch`
            flight.pending = _Failed(error)

    def _launch(self, step: Step) -> Pending:
        try:
            if step.swap_out:
                self._runner.swap_out(step.swap_out)
            for request in step.added:
                self._runner.add(request.row, request.token_ids.tolist(), request.params, request.prompt_len)
            if step.swap_in:
                self._runner.swap_in(step.swap_in)
            if step.copies:
                self._runner.copy_blocks(step.copies)
            return self._runner.launch(step.plan)
        except Exception as error:  # whatever a pass raises ends its own requests, after the steps before it
            return _Failed(error)
