"""How many requests per second one instance can serve, by a fixed point: fast, and what the simulator is started from.

At rate r, prompts take the share r·t_prefill of the device's time and decodes the rest, so that
TPOT = t_decode(B) / (1 − r·t_prefill) and B = r·(output − 1)·TPOT. B is bounded by rows and by the KV cache. Of a pass
with guesses t_decode is the time by the tokens that it tells a row.
"""

from __future__ import annotations

from typing import NamedTuple

from evaluation.planner.roofline import Step
from evaluation.planner.simulate import PLAIN, decode_pass
from evaluation.planner.util_grid import Timing, prompt_steps
from evaluation.profile import Guesses

_ROUNDS = 40


class Mean(NamedTuple):
    """Of the profile's requests, tokens: computed of the prompt, cached before it, and output."""

    prompt: float
    cached: float
    output: float
    guesses: Guesses = PLAIN

    @property
    def context(self) -> float:
        """Mean keys of a decoding row."""
        return self.cached + self.prompt + self.output / 2


class Bounds(NamedTuple):
    """sequences: rows at most; kv_tokens: that the cache holds; tpot_s, e2el_s: limits, 0 = none."""

    sequences: int
    kv_tokens: float
    step_tokens: int
    tpot_s: float = 0.0
    e2el_s: float = 0.0


class Point(NamedTuple):
    """Where an instance works at some rate (requests/s): rows that decode, seconds per token and of a whole request."""

    rate: float
    rows: float
    tpot_s: float
    e2el_s: float


def prefill_s(timing: Timing, mean: Mean, step_tokens: int) -> float:
    """Seconds of one mean prompt alone."""
    tokens = max(1, round(mean.prompt))
    steps = prompt_steps(tokens, 1, step_tokens)
    behind = [Step(0, 0, step.chunk, step.pairs + step.chunk * mean.cached) for step in steps]
    return sum(timing.seconds(step) for step in behind)


def at_rate(timing: Timing, mean: Mean, bounds: Bounds, rate: float, *, prefills: bool = True) -> Point | None:
    """None where the instance can't keep up."""
    return _at_rate(timing, mean, bounds, rate, prefill_s(timing, mean, bounds.step_tokens) if prefills else 0.0)


def _at_rate(timing: Timing, mean: Mean, bounds: Bounds, rate: float, filling: float) -> Point | None:
    free = 1 - rate * filling
    if free <= 0.02:
        return None
    if mean.output <= 1:
        return Point(rate, 0.0, 0.0, filling)
    most = min(float(bounds.sequences), bounds.kv_tokens / max(mean.prompt + mean.output, 1))
    rows = 1e-3
    for _ in range(_ROUNDS):
        many = max(rows, 1.0)
        passed = decode_pass(timing.seconds, many, many * mean.context, mean.guesses)
        tpot = passed.seconds / passed.tokens / free
        following = rate * (mean.output - 1) * tpot
        if following > most:
            return None
        if abs(following - rows) <= 1e-4 * rows:
            break
        rows = following
    return Point(rate, rows, tpot, filling + tpot * (mean.output - 1))


def largest(timing: Timing, mean: Mean, bounds: Bounds, *, prefills: bool = True) -> Point | None:
    """The largest rate whose means are within the bounds, by bisection; None where not even a trickle is."""
    filling = prefill_s(timing, mean, bounds.step_tokens) if prefills else 0.0

    def at(rate: float) -> Point | None:
        return _at_rate(timing, mean, bounds, rate, filling)

    high = 1e-3
    if not _holds(at(high), bounds):
        return None
    while high < 1e6 and _holds(at(high * 2), bounds):
        high *= 2
    low, high = high, high * 2
    for _ in range(10):  # to a thousandth
        middle = (low + high) / 2
        if _holds(at(middle), bounds):
            low = middle
        else:
            high = middle
    return at(low)


def _holds(point: Point | None, bounds: Bounds) -> bool:
    if point is None:
        return False
    return not (bounds.tpot_s and point.tpot_s > bounds.tpot_s) and not (bounds.e2el_s and point.e2el_s > bounds.e2el_s)
