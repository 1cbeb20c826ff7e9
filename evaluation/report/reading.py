"""What a report reads out of a result beyond its fields: the best point, the knee, the figure of an objective."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evaluation.schema import LevelResult, Objective, ObjectiveResult, ResultDoc, Summary

QUANTILES = ("p50", "p90", "p95", "p99")


def quantile_name(quantile: float) -> str:
    """0.99 → p99."""
    return f"p{quantile * 100:g}"


def metric_name(objective: Objective | ObjectiveResult) -> str:
    """Name in `LevelResult.metrics` of what an objective judges (evaluation/metrics/definitions.py)."""
    if objective.start == "intended" and objective.metric in ("ttft", "e2el"):
        return f"{objective.metric}_intended"
    return objective.metric


def objective_value(objective: Objective | ObjectiveResult, level: LevelResult) -> float | None:
    """The measured quantile of an objective, ms; null where a result has no such quantile."""
    return figure(level.metrics.get(metric_name(objective)), objective.quantile)


def figure(summary: Summary | None, quantile: float) -> float | None:
    """A quantile of a summary, where it has that one."""
    return getattr(summary, quantile_name(quantile), None) if summary else None


def model_of(result: ResultDoc) -> str:
    """The served model: as the run found it, else as it was told; empty where neither says."""
    found = result.environment.get("endpoint")
    named = found.get("model") if isinstance(found, dict) else result.environment.get("model")
    told = result.spec.endpoint.model if result.spec is not None else ""
    return str(named or told or "")


def load_of(level: LevelResult) -> float | None:
    """What a level is plotted over: its rate, or the concurrency of a closed loop."""
    return level.rate if level.rate is not None else level.concurrency


def failed(level: LevelResult) -> int:
    counts = level.counts
    return counts.error + counts.timeout + counts.cut + counts.cancelled


def in_order(result: ResultDoc) -> list[LevelResult]:
    """Levels by load; those without one last, as they came."""
    return sorted(result.levels, key=lambda level: (load_of(level) or math.inf, level.index))


def best_level(result: ResultDoc) -> LevelResult | None:
    """The level with the highest goodput (else the highest rate) that meets every objective."""
    passing = [
        level for level in result.levels if level.objectives and level.decision == "pass" and level.verdict == "steady"
    ]
    return max(passing, key=lambda level: (level.goodput or 0.0, load_of(level) or 0.0), default=None)


def shown_level(result: ResultDoc) -> LevelResult | None:
    """The level whose details a report opens: the best, else the last steady one, else the last."""
    steady = [level for level in in_order(result) if level.verdict == "steady"]
    levels = in_order(result)
    return best_level(result) or (steady[-1] if steady else levels[-1] if levels else None)


def knee(points: Sequence[tuple[float, float]]) -> float | None:
    """Load at which latency begins to grow faster than the load: the point farthest below the line from the first to
    the last, both axes logarithmic and scaled to 1 (as Kneedle: Satopää et al. 2011). None: no bend to speak of."""
    useful = sorted((x, y) for x, y in points if x > 0 and y > 0)
    if len(useful) < 3 or useful[0][0] == useful[-1][0] or useful[-1][1] <= useful[0][1] * 1.5:
        return None
    xs, ys = [math.log(x) for x, _ in useful], [math.log(y) for _, y in useful]
    low, high = min(ys), max(ys)
    below = [(x - xs[0]) / (xs[-1] - xs[0]) - (y - low) / (high - low) for x, y in zip(xs, ys, strict=True)]
    depth = max(below)
    return useful[below.index(depth)][0] if depth > 0.05 else None
