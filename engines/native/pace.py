"""How much prefill a step may carry beside decodes, so that the time between two tokens of a stream keeps to a target.

Decodes come first, whatever they take. What they leave of the target, by the times measured so far (`step_times`), goes
to prefill chunks. Prefill never stands still: a step in which nothing is left takes one block, or LEAST_SHARE of the
decodes' own time if that is more. Steps without decodes keep nobody waiting and are as large as the token budget.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from engines.native.config import EngineConfig
from engines.native.step import Int32, StepPlan
from engines.native.step_times import Load, StepTimes

LEAST_SHARE = 0.1
UNKNOWN = 64
"""Tokens of prefill that a step takes beside decodes before any prefill was timed."""


class Pace(Protocol):
    """Asked while a step is planned: `begin`, then `tokens` and `took` for each chunk; then told of launch and end."""

    def begin(self, computed: Int32, decodes: Int32) -> None:
        """computed: int32 [rows], tokens of each row before this step; decodes: int32 [n], rows with one token each."""
        ...

    @property
    def spent(self) -> bool:
        """Nothing more should be begun in this step."""
        ...

    def tokens(self, start: int, most: int) -> int:
        """Of `most` tokens of a prompt, of which `start` are computed, so many may be computed in this step."""
        ...

    def took(self, start: int, count: int) -> None: ...

    def launched(self, plan: StepPlan, decodes: int, now: float) -> None:
        """The first `decodes` rows of the plan decode. now: when planning began, time.monotonic(), s."""
        ...

    def done(self, failed: bool = False) -> None:
        """The oldest launched step is over."""
        ...


class Unpaced:
    """Without a target: the token budget alone decides."""

    spent = False

    def begin(self, computed: Int32, decodes: Int32) -> None:
        """Nothing to reckon."""

    def tokens(self, start: int, most: int) -> int:
        return most

    def took(self, start: int, count: int) -> None:
        """Nothing to reckon."""

    def launched(self, plan: StepPlan, decodes: int, now: float) -> None:
        """Nothing to learn."""

    def done(self, failed: bool = False) -> None:
        """Nothing to learn."""


class TargetPace:
    """target_s: seconds of a step with decodes. clock: as `now` of the plans."""

    def __init__(self, target_s: float, block_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._target_s, self._block_size, self._clock = target_s, block_size, clock
        self.times = StepTimes()
        self._room = math.inf  # s, for prefill in the step that is being planned
        self._taken = 0  # tokens of it
        self._flights: deque[tuple[Load | None, float]] = deque()
        self._last = -math.inf  # when the newest step was done

    def begin(self, computed: Int32, decodes: Int32) -> None:
        self._taken, self._room = 0, math.inf
        if len(decodes):
            keys = int(computed[decodes].sum(dtype=np.int64)) + len(decodes)
            decoding = self.times.seconds(Load(len(decodes), keys))
            self._room = max(self._target_s - decoding, LEAST_SHARE * decoding)

    @property
    def spent(self) -> bool:
        return self._taken > 0 and self._left(0, 1) < 1

    def tokens(self, start: int, most: int) -> int:
        if self._room == math.inf:
            return most
        return 0 if self.spent else min(most, max(self._left(start, most), self._block_size))

    def _left(self, start: int, most: int) -> int:
        if self._room == math.inf or self.times.knows_prefill:
            return self.times.tokens(start, self._room, most)
        return UNKNOWN - self._taken

    def took(self, start: int, count: int) -> None:
        self._taken += count
        self._room -= self.times.added(start, count)

    def launched(self, plan: StepPlan, decodes: int, now: float) -> None:
        start, count = plan.start.astype(np.int64), plan.count.astype(np.int64)
        keys = count * start + count * (count + 1) // 2
        load = Load(decodes, int(keys[:decodes].sum()), int(count[decodes:].sum()), int(keys[decodes:].sum()))
        self._flights.append((load if plan.drafts is None else None, now))

    def done(self, failed: bool = False) -> None:
        load, begun = self._flights.popleft()
        now = self._clock()
        if (
            load is not None and not failed
        ):  # a pass with drafts tells nothing of plain ones; while the step before ran, this one waited
            self.times.observe(load, now - max(begun, self._last))
        self._last = now


def pace_of(config: EngineConfig, block_size: int) -> Pace | None:
    """None where the engine has no target."""
    return TargetPace(config.target_tpot_ms / 1e3, block_size) if config.target_tpot_ms else None
