"""Sections of a quality run: tasks with their intervals, gates with the numbers that decided."""

from __future__ import annotations

from evaluation.quality.results import Figure, GateResult, QualityResult, TaskResult
from evaluation.report.html.load import interval
from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.numbers import NONE, in_unit, number, probability
from evaluation.report.html.parts import card, pill, table
from evaluation.report.html.texts import say

BAR = 180


def tasks(quality: QualityResult) -> Markup | None:
    """Primary figure first; every figure with n and the items that gave no answer."""
    rows = [row for task in quality.tasks for row in _task(task)]
    if not rows:
        return None
    heads = [say("quality.task"), say("quality.figure"), say("quality.interval"), say("quality.value")]
    return card(
        say("quality.tasks"),
        table([*heads, "", say("quality.items"), say("quality.errors")], rows, numeric_from=3),
        note=say("quality.note"),
    )


def _task(task: TaskResult) -> list[list[Child]]:
    names = sorted(task.figures, key=lambda name: name != task.primary)
    rows: list[list[Child]] = []
    for index, name in enumerate(names):
        figure = task.figures[name]
        primary = name == task.primary
        errors = h("span", f"{task.errors:,}", class_="bad" if task.errors else None)
        rows.append(
            [
                h("strong", task.name) if index == 0 else None,
                [h("strong" if primary else "span", name), h("small", figure.method, class_="muted block")],
                _bar(figure, task.chance if primary else None),
                h("strong" if primary else "span", in_unit(figure.value, figure.unit)),
                interval(figure.low, figure.high, figure.unit),
                f"{figure.n:,} / {task.items:,}",
                [errors, " ", pill(task.state) if index == 0 and task.state != "complete" else None],
            ]
        )
    return rows


def _bar(figure: Figure, chance: float | None) -> Child:
    """A share's interval on 0…1."""
    if figure.unit != "share" or figure.value is None:
        return None
    low, high = figure.low if figure.low is not None else figure.value, figure.high or figure.value
    at = {name: round(min(max(value, 0), 1) * BAR, 1) for name, value in (("low", low), ("high", high))}
    middle = round(figure.value * BAR, 1)
    return h(
        "svg",
        h("line", class_="axis", x1=0, x2=BAR, y1=11, y2=11),
        h("rect", class_="span", x=at["low"], y=7, width=max(at["high"] - at["low"], 2), height=8, rx=2),
        h("line", class_="at", x1=middle, x2=middle, y1=4, y2=18),
        h("line", class_="chance", x1=chance * BAR, x2=chance * BAR, y1=2, y2=20) if chance is not None else None,
        class_="forest",
        viewBox=f"0 0 {BAR} 22",
        aria_hidden="true",
    )


def gates(results: list[GateResult]) -> Markup | None:
    if not results:
        return None
    heads = [say("quality.gate"), say("quality.decision"), say("quality.reason"), say("quality.value")]
    more = [say("quality.interval"), say("quality.baseline"), say("quality.flips"), say("quality.p")]
    rows = [
        [
            [h("strong", gate.name), h("small", gate.rule, class_="muted block")],
            pill(gate.decision),
            gate.reason,
            number(gate.value),
            interval(gate.low, gate.high, ""),
            number(gate.baseline),
            f"{gate.right_to_wrong} / {gate.wrong_to_right}" if gate.right_to_wrong is not None else NONE,
            probability(gate.p_adjusted if gate.p_adjusted is not None else gate.p),
        ]
        for gate in results
    ]
    return card(say("quality.gates"), table([*heads, *more], rows, numeric_from=3))
