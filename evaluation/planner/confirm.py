"""A plan against its load test: each predicted figure beside the measured one, and how far they are apart."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from evaluation.planner.answers import Basis, Choice, Figure
from evaluation.schema import LevelResult, ResultDoc

TARGETS = {"tpot": 0.10, "requests_per_s": 0.10, "ttft_p50": 0.20, "memory": 0.05}
"""Relative, on calibrated devices: what a plan promises. Other quantiles have no promise but their interval."""


class ConfirmError(ValueError):
    """Names what the result lacks and the fix."""

    code = "not_comparable"


class Residual(Struct, kw_only=True, frozen=True):
    """residual: predicted / measured − 1, null for a bound. inside: the measured value lies in the interval."""

    metric: str
    unit: str
    low: float
    predicted: float | None
    high: float
    measured: float
    residual: float | None
    inside: bool
    basis: Basis
    target: float | None
    verdict: Literal["met", "missed", "no_target"]


def residual(figure: Figure, measured: float) -> Residual:
    target = _target(figure.metric) if figure.basis == "calibrated" else None
    apart = figure.value / measured - 1 if figure.value is not None and measured else None
    verdict: Literal["met", "missed", "no_target"] = "no_target"
    if target is not None and apart is not None:
        verdict = "met" if abs(apart) <= target else "missed"
    return Residual(
        metric=figure.metric, unit=figure.unit, low=figure.low, predicted=figure.value, high=figure.high,
        measured=measured, residual=apart, inside=figure.low <= measured <= figure.high, basis=figure.basis,
        target=target, verdict=verdict,
    )  # fmt: skip


def level_of(result: ResultDoc, rate: float) -> LevelResult:
    """The steady level whose rate is nearest to the plan's. Raises ConfirmError where none is within a tenth."""
    steady = [level for level in result.levels if level.verdict == "steady" and level.rate]
    nearest = min(steady, key=lambda level: abs(math.log((level.rate or 1) / rate)), default=None)
    if nearest is None or abs(math.log((nearest.rate or 1) / rate)) > 0.1:
        rates = ", ".join(f"{level.rate:g} ({level.verdict})" for level in result.levels if level.rate) or "none"
        raise ConfirmError(
            f"levels: the plan is for {rate:g} requests/s and no steady level is near it (there are: {rates}); load "
            "the deployment at the planned rate"
        )
    return nearest


def confirm(choice: Choice, peak: float, result: ResultDoc) -> list[Residual]:
    """Of a choice's figures at the profile's peak (requests/s of the whole deployment). Raises ConfirmError."""
    level = level_of(result, peak)
    found = []
    for figure in choice.figures:
        measured = measured_of(figure.metric, level, result)
        if measured is not None:
            found.append(residual(figure, measured))
    if not found:
        raise ConfirmError("metrics: the level has none of the plan's figures; was it run with this version?")
    return found


def measured_of(metric: str, level: LevelResult, result: ResultDoc) -> float | None:
    """Latencies from the intended start where the level has them, as the simulator counts."""
    if metric == "requests_per_s":
        capacity = result.capacity
        return capacity.low if capacity is not None and capacity.decision == "certified" else None
    name, _, quantile = metric.partition("_")
    summary = level.metrics.get(f"{name}_intended") or level.metrics.get(name)
    return getattr(summary, quantile, None) if summary is not None else None


def table(residuals: list[Residual]) -> str:
    """For a terminal."""
    lines = [("metric", "predicted", "interval", "measured", "residual", "inside", "target")]
    lines += [_row(each) for each in residuals]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _row(each: Residual) -> tuple[str, str, str, str, str, str, str]:
    return (
        each.metric,
        "bound only" if each.predicted is None else f"{each.predicted:.4g} {each.unit}",
        f"{each.low:.4g} … {each.high:.4g}",
        f"{each.measured:.4g}",
        "" if each.residual is None else f"{each.residual:+.1%}",
        "yes" if each.inside else "no",
        "" if each.target is None else f"≤ {each.target:.0%} {each.verdict}",
    )


def _target(metric: str) -> float | None:
    return TARGETS.get(metric) or TARGETS.get(metric.partition("_")[0])
