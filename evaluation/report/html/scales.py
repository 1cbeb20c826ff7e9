"""Axes: where a value lies, and the round numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """[low, high] of the data onto [start, end] of the drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return round(self.start + (at - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers within; a logarithmic axis of more than two decades has only 1, 2, 5."""
        if self.log and self.high / self.low > 10:
            steps = (1, 2, 5) if self.high / self.low < 1_000 else (1,)
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [step * 10.0**decade for decade in decades for step in steps]
        else:
            step = nice((self.high - self.low) / count)
            first = math.ceil(self.low / step - 1e-9)
            marks = [round(index * step, 12) for index in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [mark for mark in marks if self.low * (1 - 1e-9) <= mark <= self.high * (1 + 1e-9)]


def nice(step: float) -> float:
    """The next of 1, 2, 2.5, 5 · 10^k."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if step <= factor * power * (1 + 1e-9))


def linear(values: Sequence[float], start: float, end: float) -> Scale:
    """From 0 to a little above the greatest."""
    top = max([value for value in values if math.isfinite(value)], default=1.0) or 1.0
    return Scale(0.0, top * 1.08, start, end)


def fitting(values: Sequence[float], start: float, end: float, *, decades: float = 1.2) -> Scale:
    """Logarithmic where positive values spread over more than `decades`, else from 0."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if not positive or math.log10(max(positive) / min(positive)) <= decades:
        return linear(values, start, end)
    return Scale(min(positive) / 1.25, max(positive) * 1.25, start, end, log=True)
