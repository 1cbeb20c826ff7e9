"""Figures of quality runs, item by item where both kept their samples."""

from __future__ import annotations

from collections.abc import Iterator

from evaluation.metrics.paired import mcnemar, paired_bootstrap
from evaluation.quality.gates import LOWER_IS_BETTER, GateError, pairs
from evaluation.quality.results import Figure, QualityResult, TaskResult
from evaluation.report.comparison.document import Compared
from evaluation.report.comparison.runs import Side


def figures(base: Side, other: Side) -> Iterator[Compared]:
    """The primary figure of each common task is paired; the others are told without a test."""
    one, two = base.first.result.quality, other.first.result.quality
    if one is None or two is None:
        return
    for task in two.tasks:
        before = next((each for each in one.tasks if each.name == task.name), None)
        if before is None:
            continue
        for name in sorted(task.figures, key=lambda name: name != task.primary):
            if name in before.figures:
                yield _figure(base, other, before, task, name)


def missing(one: QualityResult, two: QualityResult) -> list[str]:
    """Tasks that only one of them has."""
    return sorted({task.name for task in one.tasks} ^ {task.name for task in two.tasks})


def _figure(base: Side, other: Side, before: TaskResult, task: TaskResult, name: str) -> Compared:
    old, new = before.figures[name], task.figures[name]
    row = Compared(
        figure=f"{task.name}.{name}",
        unit=new.unit,
        better="lower" if name in LOWER_IS_BETTER else "higher",
        base=old.value,
        other=new.value,
        base_n=old.n,
        other_n=new.n,
        base_failed=before.errors,
        other_failed=task.errors,
    )
    if old.value and new.value is not None:
        row.change = new.value / old.value
    if before.dataset.get("sha256") != task.dataset.get("sha256"):
        row.verdict, row.reason = "not_comparable", "datasets_differ"
    elif name != task.primary:
        row.reason = "not_paired"
    elif base.first.folder is None or other.first.folder is None:
        row.reason = "no_samples"
    else:
        _paired(row, base, other, task, old)
    return row


def _paired(row: Compared, base: Side, other: Side, task: TaskResult, old: Figure) -> None:
    """McNemar's exact p for items that are right or wrong, the bootstrap's for others; the interval is the ratio's."""
    folders = other.first.folder, base.first.folder
    assert folders[0] is not None
    assert folders[1] is not None
    try:
        found = pairs(task, folders[0], folders[1])
    except GateError as error:
        row.verdict, row.reason = "not_comparable", error.code
        return
    row.base_n = row.other_n = len(found.now)
    if sum(found.before) > 0 and old.unit in ("share", "ratio"):
        ratio = paired_bootstrap(found.before, found.now, ratio=True, clusters=found.groups)
        row.change, row.low, row.high, row.p = ratio.value, ratio.low, ratio.high, ratio.p
        row.base, row.other = (sum(side) / len(side) for side in (found.before, found.now))
    else:
        row.p = paired_bootstrap(found.before, found.now, clusters=found.groups).p
    row.method = "paired_bootstrap"
    flips = found.flips
    if flips is not None and len(set(found.groups)) == len(found.groups):
        row.improved, row.regressed = flips
        row.p, row.method = mcnemar(*flips), "mcnemar"
