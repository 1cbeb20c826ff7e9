"""Latencies and rates of one instance, simulated at the fast, the likely and the slow end of what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from evaluation.planner import simulate
from evaluation.planner.answers import Basis, Figure
from evaluation.planner.roofline import Step
from evaluation.planner.simulate import Limits, Outcome, Work
from evaluation.planner.util_grid import Timing
from evaluation.profile import BusinessProfile
from evaluation.schema import Objective

SKIP = 0.1
"""Of the simulated requests at each end, whose queue is still filling or already emptying."""
Meets = Literal["yes", "no", "unknown"]


class Ends:
    """The same requests at three speeds. `middle` of an uncalibrated device is no prediction."""

    def __init__(self, fast: Outcome, middle: Outcome, slow: Outcome) -> None:
        self.fast, self.middle, self.slow = fast, middle, slow


def work_of(profile: BusinessProfile, rate: float, count: int, *, prefix_hits: float = 1.0, seed: int = 1) -> Work:
    """Requests of one instance. prefix_hits: share of requests whose prefix is in the cache."""
    chooser = np.random.default_rng(seed)
    drawn = profile.draw(chooser, count)
    at = simulate.arrivals(chooser, rate, count, profile.arrivals.burstiness)
    cached = drawn.prefix * (chooser.random(count) < prefix_hits)
    prompt = np.maximum(drawn.prefix - cached + drawn.user, 1.0)
    return Work(at, prompt, cached, np.maximum(np.round(drawn.output), 1.0), profile.guesses)


def run(timing: Timing, work: Work, limits: Limits) -> Ends:
    """The fixed part of a request over HTTP is added to TTFT and E2EL, not to the device's time."""
    fast, slow = timing.factors
    ends = [_one(timing, work, limits, factor) for factor in (fast, 1.0, slow)]
    return Ends(*ends)


def _one(timing: Timing, work: Work, limits: Limits, factor: float) -> Outcome:
    def seconds(step: Step) -> float:
        return factor * timing.seconds(step)

    found = simulate.simulate(work, limits, seconds)
    if not timing.overhead_s:
        return found
    return found._replace(ttft=found.ttft + timing.overhead_s, e2el=found.e2el + timing.overhead_s)


def figures(ends: Ends, timing: Timing, objectives: list[Objective]) -> list[Figure]:
    """TTFT, TPOT and E2EL at P50 and P95, and what the objectives ask for."""
    wanted = [("ttft", 0.5), ("ttft", 0.95), ("tpot", 0.5), ("tpot", 0.95), ("e2el", 0.5), ("e2el", 0.95)]
    wanted += [pair for each in objectives if (pair := (_simulated(each.metric), each.quantile)) not in wanted]
    return [
        figure(f"{metric}_p{quantile * 100:g}", "ms", timing, ends, _milliseconds(metric, quantile))
        for metric, quantile in wanted
        if not np.isnan(getattr(ends.middle, metric)).all()
    ]


def _milliseconds(metric: str, quantile: float) -> Callable[[Outcome], float]:
    return lambda outcome: 1e3 * outcome.quantile(metric, quantile, SKIP)


def figure(
    metric: str, unit: str, timing: Timing, ends: Ends, of: Callable[[Outcome], float], basis: Basis | None = None
) -> Figure:
    values = sorted((of(ends.fast), of(ends.slow)))
    middle = of(ends.middle)
    basis = basis or timing.basis
    value = None if basis == "bound_only" else middle
    return Figure(
        metric=metric, unit=unit, low=min(values[0], middle), value=value, high=max(values[1], middle), basis=basis,
        source=timing.source,
    )  # fmt: skip


def meets(ends: Ends, timing: Timing, objectives: list[Objective]) -> tuple[Meets, list[tuple[Objective, Meets]]]:
    """Whether each objective holds: no where even the fast end misses it; yes where the slow end of a measured grid
    keeps it; else unknown."""
    each = [(objective, _holds(ends, timing, objective)) for objective in objectives]
    found = {verdict for _, verdict in each}
    overall: Meets = "no" if "no" in found else "unknown" if "unknown" in found or timing.grid is None else "yes"
    return overall, each


def _holds(ends: Ends, timing: Timing, objective: Objective) -> Meets:
    fast, slow = (_value(each, objective) for each in (ends.fast, ends.slow))
    if not fast <= objective.limit_ms:
        return "no"
    if objective.metric == "itl":  # single gaps are longer than their mean, which is all that is simulated
        return "unknown"
    return "yes" if slow <= objective.limit_ms and timing.grid is not None else "unknown"


def _value(outcome: Outcome, objective: Objective) -> float:
    value = outcome.quantile(_simulated(objective.metric), objective.quantile, SKIP)
    return 0.0 if math.isnan(value) else 1e3 * value


def _simulated(metric: str) -> str:
    """Gaps between tokens are simulated as their mean per request."""
    return "tpot" if metric == "itl" else metric
