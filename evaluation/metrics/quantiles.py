"""Quantiles and summaries. A quantile is an observed value: the ceil(q n)-th smallest, as its bounds are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evaluation.metrics.stats import batch_interval, quantile_ranks
from evaluation.schema import Summary

Array = npt.NDArray[np.float64]
EXACT = 1_000_000  # values that are sorted; above, a sketch answers
SHOWN = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def quantile(ordered: Array, q: float) -> float:
    """Of values in rising order. Raises ValueError for none."""
    if not len(ordered):
        raise ValueError("a quantile of no values: count what was left out, and say that nothing was measured")
    return float(ordered[min(len(ordered), max(1, math.ceil(q * len(ordered) - 1e-9))) - 1])


class Sketch:
    """DDSketch (Masson, Rim and Lee, VLDB 2019): quantiles within a relative error, of any number of values.

    accuracy: largest |estimate - value| / value. Values must not be negative; below 1e-9 counts as 0.
    """

    def __init__(self, accuracy: float = 0.005) -> None:
        self._gamma = (1 + accuracy) / (1 - accuracy)
        self._counts: dict[int, int] = {}
        self._zeros = 0
        self.n = 0

    def add(self, values: Array) -> None:
        positive = values[values > 1e-9]
        self.n += len(values)
        self._zeros += len(values) - len(positive)
        keys, counts = np.unique(np.ceil(np.log(positive) / math.log(self._gamma)), return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self._counts[int(key)] = self._counts.get(int(key), 0) + int(count)

    def quantile(self, q: float) -> float:
        if not self.n:
            raise ValueError("a quantile of no values")
        rank = max(1, math.ceil(q * self.n - 1e-9))
        seen = self._zeros
        if seen >= rank:
            return 0.0
        for key in sorted(self._counts):
            seen += self._counts[key]
            if seen >= rank:
                break
        return float(2 * self._gamma**key / (self._gamma + 1))


def summarize(values: Sequence[float] | Array, unit: str, confidence: float = 0.95) -> Summary:
    """All that is told of one metric. Nothing measured: n = 0 and nulls, never 0."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    if not n:
        return Summary(unit=unit, n=0)
    low, high = batch_interval(array, confidence)
    summary = Summary(
        unit=unit, n=n, mean=float(array.mean()), low=low, high=high, min=float(array.min()), max=float(array.max())
    )
    if n > EXACT:
        sketch = Sketch()
        sketch.add(array)
        for name, q in SHOWN.items():
            setattr(summary, name, sketch.quantile(q))
        return summary
    ordered = np.sort(array)
    for name, q in SHOWN.items():
        setattr(summary, name, quantile(ordered, q))
        first, last = quantile_ranks(n, q, confidence)
        summary.bounds[name] = (
            float(ordered[first - 1]) if first else None,
            float(ordered[last - 1]) if last else None,
        )
    return summary
