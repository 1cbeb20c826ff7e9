"""A comparison as plain text: what casts doubt first, then the figures that differ, then the rest counted."""

from __future__ import annotations

from collections.abc import Iterable

from evaluation.report.comparison.document import Compared, Comparison, Pair
from evaluation.report.html.numbers import change, in_unit, number, percent, probability

SIGNS = {"better": "+", "worse": "-", "same": "=", "undetermined": "?", "not_comparable": "x"}


def text(comparison: Comparison, *, everything: bool = False) -> str:
    """everything: also the figures without a verdict."""
    lines = [f"base: {comparison.base.name}"]
    for pair in comparison.pairs:
        lines += ["", f"{pair.other.name} against {comparison.base.name}"]
        lines += [f"  {note.severity}: {note.code}: {note.cause} {note.remedy}".rstrip() for note in pair.notes]
        lines += _table(pair, everything)
    share = percent(comparison.threshold)
    lines += ["", f"better or worse: significant at 5 % after Holm, and beyond {share}"]
    return _plain("\n".join(lines)) + "\n"


def _plain(told: str) -> str:
    """Without control characters: names of runs and errors come from outside, and a terminal obeys escapes."""
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in told)


def _table(pair: Pair, everything: bool) -> Iterable[str]:
    shown = [figure for figure in pair.figures if everything or figure.verdict in ("better", "worse")]
    if shown:
        head = ("", "figure", "load", "base", "other", "change", "95 % interval", "p Holm", "failed")
        rows = [head, *map(_row, shown)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        yield from ("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    counted = {verdict: sum(figure.verdict == verdict for figure in pair.figures) for verdict in SIGNS}
    yield "  " + ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counted.items() if count)


def _row(figure: Compared) -> tuple[str, ...]:
    both = f"{change(figure.low)} … {change(figure.high)}" if figure.low is not None else "–"
    return (
        SIGNS[figure.verdict],
        figure.figure,
        number(figure.load),
        in_unit(figure.base, figure.unit),
        in_unit(figure.other, figure.unit),
        change(figure.change),
        both,
        probability(figure.p_adjusted),
        f"{figure.base_failed}/{figure.other_failed}",
    )
