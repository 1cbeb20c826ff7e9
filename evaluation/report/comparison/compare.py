"""Comparing: the checks, then the figures, then Holm over all of a pair, then the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluation.metrics.paired import holm
from evaluation.report.comparison import checks, load, quality
from evaluation.report.comparison.document import (
    SIGNIFICANT,
    THRESHOLD,
    Compared,
    Comparison,
    Note,
    Pair,
    Verdict,
)
from evaluation.report.comparison.runs import Side, open_side


def compare(paths: Sequence[Path], threshold: float = THRESHOLD) -> Comparison:
    """The first against each other one. threshold: relative change that matters. Raises ReportError."""
    if len(paths) < 2:
        raise ValueError("two results at least: tursiops-eval compare BASE OTHER …")
    base, *others = [open_side(path) for path in paths]
    pairs = [_pair(base, other, threshold) for other in others]
    return Comparison(base=base.told, pairs=pairs, threshold=threshold)


def _pair(base: Side, other: Side, threshold: float) -> Pair:
    notes = checks.notes(base, other)
    comparable = all(note.severity != "error" for note in notes)
    figures = [*load.figures(base, other), *quality.figures(base, other)]
    one, two = base.first.result, other.first.result
    if one.levels and two.levels and not load.common_loads(base, other):
        loads = {"base": load.loads(one), "other": load.loads(two)}
        notes.append(
            Note(
                code="no_common_load",
                severity="warning",
                cause="The runs have no load in common: latencies at different loads say nothing about the versions.",
                remedy="Run both with load kind 'sweep' and the same rates.",
                evidence=loads,
            )
        )
    if one.quality and two.quality and (alone := quality.missing(one.quality, two.quality)):
        notes.append(
            Note(
                code="tasks_missing",
                severity="warning",
                cause="Some tasks were measured by one of the runs only.",
                remedy="Run both with one suite.",
                evidence={"tasks": alone},
            )
        )
    _judge(figures, threshold, comparable)
    return Pair(other=other.told, comparable=comparable, notes=notes, figures=figures)


def _judge(figures: list[Compared], threshold: float, comparable: bool) -> None:
    tested = [figure for figure in figures if figure.p is not None and figure.verdict != "not_comparable"]
    for figure, adjusted in zip(tested, holm([figure.p or 0.0 for figure in tested]), strict=True):
        figure.p_adjusted = adjusted
    for figure in figures:
        if not comparable:
            figure.verdict, figure.reason = "not_comparable", "refused"
        elif figure.verdict == "undetermined" and not figure.reason:
            figure.verdict, figure.reason = _verdict(figure, threshold)


def _verdict(figure: Compared, threshold: float) -> tuple[Verdict, str]:
    """Significance and size, both: a tiny sure change and a large unsure one are no verdict."""
    change = figure.change if figure.change is not None else 1.0
    if figure.p_adjusted is not None:
        significant = figure.p_adjusted < SIGNIFICANT
    else:  # certified intervals that do not touch
        significant = bool(figure.low is not None and figure.high is not None and not figure.low <= 1 <= figure.high)
    if not significant:
        return "same", "not_significant"
    if abs(change - 1) <= threshold:
        return "same", "below_threshold"
    return ("better" if (change > 1) == (figure.better == "higher") else "worse"), ""
