"""The page of a comparison: may it be read, then every figure with its change, interval and verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evaluation.report.comparison.document import Compared, Comparison, Note, Pair, RunName
from evaluation.report.html.compare_texts import NOTES, REASONS
from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.numbers import NONE, change, in_unit, number, percent, plain, probability
from evaluation.report.html.page import page
from evaluation.report.html.parts import alert, card, pill, table
from evaluation.report.html.texts import both, metric_name, say

BAR, MIDDLE = 220, 110


def comparison_page(comparison: Comparison, language: str = "en") -> str:
    names = [comparison.base.name, *(pair.other.name for pair in comparison.pairs)]
    title = " ↔ ".join(names)
    heading = h("div", h("h1", title), h("p", h("span", say("kind.compare")), class_="muted crumbs"))
    sections: list[Child] = [_runs(comparison)]
    for pair in comparison.pairs:
        sections += [_notes(pair), *_figures(comparison, pair)]
    return page(f"{title} – Tursiops", heading, *sections, language=language)


def _runs(comparison: Comparison) -> Markup:
    keys = ["compare.run", "run.model", "run.url", "run.started", "run.seed", "run.definitions", "compare.repeats"]
    told = [comparison.base, *(pair.other for pair in comparison.pairs)]
    rows = [_run(run, run is comparison.base) for run in told]
    return card(say("compare.runs"), table([say(key) for key in keys], rows, numeric_from=4))


def _run(run: RunName, base: bool) -> list[Child]:
    beside = h("small", " ", say("compare.base"), class_="muted") if base else None
    source = h("small", f" ({run.source})", class_="muted") if run.source != "tursiops" else None
    verdict = [" ", pill(run.verdict)] if run.verdict in ("invalid", "fail", "pass") else None
    return [
        [h("strong", run.name), beside, source, verdict],
        run.model or NONE,
        run.url or NONE,
        run.started_at or NONE,
        str(run.seed),
        str(run.definitions),
        str(run.runs),
    ]


def _notes(pair: Pair) -> Markup | None:
    if not pair.notes:
        return None
    told = []
    for severity in ("error", "warning", "info"):
        notes = [_note(note) for note in pair.notes if note.severity == severity]
        if notes:
            told.append(alert(severity, say(f"compare.{severity}", run=pair.other.name), notes))
    return h("div", told, class_="alerts")


def _note(note: Note) -> Markup:
    chinese = NOTES.get(note.code)
    english = f"{note.cause} {note.remedy}".strip()
    evidence = [
        h("span", h("span", name.replace("_", " "), class_="muted"), " ", plain(value), class_="chip")
        for name, value in note.evidence.items()
        if value is not None
    ]
    return h("span", both((english, chinese)) if chinese else english, h("div", evidence) if evidence else None)


def _figures(comparison: Comparison, pair: Pair) -> list[Markup]:
    """Those of the whole run first, then a fold per load; folds with a verdict are open."""
    if not pair.figures:
        return []
    counted = {v: sum(f.verdict == v for f in pair.figures) for v in ("worse", "better", "same", "undetermined")}
    summary = h(
        "p", [[h("span", pill(v), f" {n}  ", class_="count")] for v, n in counted.items() if n], class_="counts"
    )
    # One scale for all bars of a pair: nine of ten interval ends lie on it, the others on its edge.
    ends = [abs(math.log(end)) for f in pair.figures for end in (f.low, f.high) if end and math.isfinite(end)]
    widest = max(0.1, *sorted(ends)[: math.ceil(0.9 * len(ends))][-1:])
    folds = []
    loads = list(dict.fromkeys(figure.load for figure in pair.figures))
    for load in loads:
        rows = [figure for figure in pair.figures if figure.load == load]
        body = _table(rows, widest, comparison.threshold)
        if load is None:
            folds.append(body)
            continue
        marks = [[" ", pill(v)] for v in ("worse", "better") if any(row.verdict == v for row in rows)]
        head = h("summary", h("strong", say("compare.at", load=number(load))), marks)
        folds.append(h("details", head, body, open=bool(marks) or len(loads) <= 2))
    title = say("compare.title", run=pair.other.name, base=comparison.base.name)
    note = say("compare.note", threshold=percent(comparison.threshold))
    return [card(title, summary, *folds, note=note)]


def _table(rows: Sequence[Compared], widest: float, threshold: float) -> Markup:
    heads = [say("compare.figure"), say("compare.verdict"), say("compare.chart"), say("compare.change")]
    more = [say("compare.interval"), say("compare.base"), say("compare.other"), say("compare.n"), say("compare.p")]
    made = []
    for row in rows:
        failed = h("span", f"{row.base_failed:,} / {row.other_failed:,}", class_="bad")
        flips = f"−{row.regressed} +{row.improved}" if row.regressed is not None else None
        reason = REASONS.get(row.reason)
        made.append(
            [
                [_name(row.figure), h("small", flips, class_="muted block") if flips else None],
                [pill(row.verdict), h("small", both(reason), class_="muted block") if reason else None],
                _bar(row, widest, threshold),
                h("strong", change(row.change)),
                h("small", f"{change(row.low)} … {change(row.high)}", class_="muted nowrap") if row.low else None,
                in_unit(row.base, row.unit),
                in_unit(row.other, row.unit),
                [
                    f"{row.base_n:,} / {row.other_n:,}",
                    h("small", say("col.failed"), " ", failed, class_="block")
                    if row.base_failed or row.other_failed
                    else None,
                ],
                probability(row.p_adjusted),
            ]
        )
    return table([*heads, *more], made, numeric_from=3)


def _name(figure: str) -> Markup:
    name, dot, statistic = figure.partition(".")
    return h(
        "span",
        h("strong", metric_name(name)),
        f" {statistic.upper()}" if dot and statistic[:1] == "p" else f" {statistic}",
    )


def _bar(row: Compared, widest: float, threshold: float) -> Child:
    """The change on a logarithmic axis around 1, with the band that does not matter."""
    if not row.change or row.change <= 0:
        return None

    def at(ratio: float) -> float:
        return round(MIDDLE + min(max(math.log(ratio) / widest, -1), 1) * (MIDDLE - 4), 1)

    tone = {"better": "ok", "worse": "error"}.get(row.verdict, "")
    band = (at(1 - threshold), at(1 + threshold))
    span = None
    if row.low and row.high and row.low > 0:
        span = h(
            "rect", class_=f"span {tone}", x=at(row.low), y=7, width=max(at(row.high) - at(row.low), 2), height=8, rx=2
        )
    return h(
        "svg",
        h("rect", class_="practical", x=band[0], y=0, width=round(band[1] - band[0], 1), height=22),
        h("line", class_="axis", x1=MIDDLE, x2=MIDDLE, y1=0, y2=22),
        span,
        h("line", class_=f"at {tone}", x1=at(row.change), x2=at(row.change), y1=4, y2=18),
        class_="forest wide",
        viewBox=f"0 0 {BAR} 22",
        aria_hidden="true",
    )
