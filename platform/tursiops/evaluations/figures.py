"""The figures of a run that are compared from day to day, taken from its result documents. Pure.

A figure is `{value, low, high, unit, better}`: low and high are its own interval where the result has one, else null.
"""

from __future__ import annotations

from typing import TypedDict

from evaluation.quality.results import QualityResult
from evaluation.schema import LevelResult, ResultDoc

PRACTICAL = 0.03  # a smaller change is none, however certain it is
QUANTILES = ("p50", "p95", "p99")
_RATES = {"goodput": "req/s", "attainment": "share", "done_rate": "req/s"}
_LESS_IS_BETTER = ("nats", "perplexity")  # units of quality figures
_STATES = ("steady", "overloaded")  # of levels whose figures mean what they say


class Figure(TypedDict):
    value: float
    low: float | None
    high: float | None
    unit: str
    better: str  # "lower" or "higher"


class Regression(TypedDict):
    figure: str
    unit: str
    value: float
    baseline: float
    low: float | None  # the baseline's interval
    high: float | None
    change: float  # relative to the baseline
    limit: float  # what would still have been none


def of(doc: ResultDoc) -> dict[str, Figure]:
    """By name: `capacity` of a search, `e2el.p95` of one level, `2.5/s e2el.p95` of a sweep's, `gsm8k.accuracy`"""
    found: dict[str, Figure] = {}
    if doc.kind == "search":
        if doc.capacity is not None and doc.capacity.low is not None:
            found["capacity"] = _figure(doc.capacity.low, doc.capacity.low, doc.capacity.high, "req/s", "higher")
        return found
    for level in doc.levels:
        if level.verdict in _STATES:
            prefix = f"{level.rate:g}/s " if len(doc.levels) > 1 and level.rate is not None else ""
            found |= {f"{prefix}{name}": figure for name, figure in _of_level(level).items()}
    return found | _of_quality(doc.quality)


def _of_level(level: LevelResult) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for metric, summary in level.metrics.items():
        for quantile in QUANTILES:
            value = getattr(summary, quantile)
            if value is not None:
                low, high = summary.bounds.get(quantile, (None, None))
                found[f"{metric}.{quantile}"] = _figure(value, low, high, summary.unit, "lower")
    for name, unit in _RATES.items():
        value = getattr(level, name)
        if value is not None:
            found[name] = _figure(value, None, None, unit, "higher")
    return found


def _of_quality(quality: QualityResult | None) -> dict[str, Figure]:
    """Of each task the figure that it is known by."""
    found: dict[str, Figure] = {}
    for task in quality.tasks if quality is not None else []:
        figure = task.figures.get(task.primary)
        if figure is not None and figure.value is not None:
            better = "lower" if figure.unit in _LESS_IS_BETTER else "higher"
            found[f"{task.name}.{task.primary}"] = _figure(figure.value, figure.low, figure.high, figure.unit, better)
    return found


def regressions(now: dict[str, Figure], before: dict[str, Figure]) -> list[Regression]:
    """Figures that are worse than the baseline's interval allows and by more than 3 %, worst first."""
    found = []
    for name in now.keys() & before.keys():
        mine, theirs = now[name], before[name]
        edge = worst_allowed(theirs)
        worse = mine["value"] > edge if theirs["better"] == "lower" else mine["value"] < edge
        if worse:
            base = theirs["value"]
            found.append(
                Regression(
                    figure=name,
                    unit=theirs["unit"],
                    value=mine["value"],
                    baseline=base,
                    low=theirs["low"],
                    high=theirs["high"],
                    change=(mine["value"] - base) / abs(base) if base else 0.0,
                    limit=edge,
                )
            )
    return sorted(found, key=lambda item: (-abs(item["change"]), item["figure"]))


def worst_allowed(figure: Figure) -> float:
    """The last value that is no regression of `figure`: its interval's end, or 3 % away, whichever is farther."""
    value, margin = figure["value"], PRACTICAL * abs(figure["value"])
    if figure["better"] == "lower":
        return max(value + margin, value if figure["high"] is None else figure["high"])
    return min(value - margin, value if figure["low"] is None else figure["low"])


def shown(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".strip()


def _figure(value: float, low: float | None, high: float | None, unit: str, better: str) -> Figure:
    return Figure(value=float(value), low=low, high=high, unit=unit, better=better)
