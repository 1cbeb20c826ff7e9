"""How much KV memory a set of requests will need at its peak (the rule of LightLLM's scheduler).

Requests end one after another. When the one with the i-th longest remaining output ends, i requests are there, each
grown by that remaining output; the peak is the largest such moment. Reserving max_tokens instead wastes memory, and
looking at the present only leads to preemptions.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]

PRIOR_OUTPUT = 256
"""Expected output, tokens, before any request has ended."""


def peak_tokens(used: Int, remaining: Int) -> int:
    """used, remaining: int64 [n], tokens held now and expected still to come."""
    order = np.argsort(-remaining, kind="stable")
    moments = np.cumsum(used[order]) + remaining[order] * np.arange(1, len(order) + 1)
    return int(moments.max(initial=0))


class OutputHistory:
    """Lengths of recent outputs, and what they say of one that is still running."""

    def __init__(self, size: int = 256) -> None:
        self._lengths: deque[int] = deque(maxlen=size)
        self._sorted: Int = np.empty(0, np.int64)
        self._tail_sums: Int = np.empty(0, np.int64)

    def add(self, length: int) -> None:
        self._lengths.append(length)
        self._sorted = np.empty(0, np.int64)  # sorted again when next asked

    def remaining(self, generated: Int) -> Int:
        """Expected tokens still to come, int64 [n]: the mean of the recent outputs that were longer than this one is
        already, less what it has; where none was longer, half of what it has again."""
        if not self._lengths:
            return np.maximum(PRIOR_OUTPUT - generated, generated // 2 + 1)
        if not len(self._sorted):
            self._sorted = np.sort(np.fromiter(self._lengths, np.int64, len(self._lengths)))
            self._tail_sums = np.append(np.cumsum(self._sorted[::-1])[::-1], 0)
        first = np.searchsorted(self._sorted, generated, side="right")
        longer = len(self._sorted) - first
        means = self._tail_sums[first] // np.maximum(longer, 1)
        return np.where(longer > 0, means - generated, generated // 2 + 1)
