"""Pieces that every section is made of: card, table, tile, verdict, term with its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.texts import say, word

# Tone of a verdict; never shown without its icon and its word.
TONES = {
    "pass": "ok",
    "steady": "ok",
    "certified": "ok",
    "complete": "ok",
    "better": "ok",
    "fail": "error",
    "overloaded": "error",
    "invalid": "error",
    "error": "error",
    "worse": "error",
    "undetermined": "warning",
    "warning": "warning",
    "incomplete": "warning",
    "not_comparable": "warning",
    "running": "info",
    "info": "info",
    "same": "info",
}
ICONS = {"ok": "✓", "error": "✕", "warning": "!", "info": "i"}


def pill(verdict: str) -> Markup:
    tone = TONES.get(verdict, "info")
    icon = h("span", ICONS[tone], class_="icon", aria_hidden="true")
    return h("span", icon, word("verdict", verdict), class_=f"pill {tone}")


def card(title: Child, *children: Child, note: Child = None, class_: str = "") -> Markup:
    below = h("p", note, class_="muted note") if note else None
    return h("section", h("h2", title), *children, below, class_=f"card {class_}".strip())


def tile(name: Child, value: Child, unit: Child, below: Child) -> Markup:
    shown = h("div", value, " ", h("small", unit), class_="tile-value")
    return h("div", h("div", name, class_="tile-name"), shown, h("div", below, class_="tile-below"), class_="tile")


def hint(key: str) -> Markup:
    """A heading whose meaning stands in a tip, in both languages."""
    return h("span", say(key), h("span", say(f"{key}.hint"), class_="tip", role="tooltip"), class_="term", tabindex="0")


def table(heads: Sequence[Child], rows: Iterable[Sequence[Child]], *, numeric_from: int = 1) -> Markup:
    """Columns from `numeric_from` (0-based) are numbers: right-aligned, of equal width digits."""

    def cells(tag: str, row: Sequence[Child]) -> list[Markup]:
        scope = {"scope": "col"} if tag == "th" else {}
        return [
            h(tag, cell, class_="num" if index >= numeric_from else None, **scope) for index, cell in enumerate(row)
        ]

    body = [h("tr", cells("td", row)) for row in rows]
    return h(
        "div", h("table", h("thead", h("tr", cells("th", heads))), h("tbody", body)), class_="scroll", tabindex="0"
    )


def facts(rows: Iterable[tuple[Child, Child]]) -> Markup:
    return h("dl", [(h("dt", name), h("dd", value)) for name, value in rows], class_="facts")


def legend(*items: tuple[str, Child]) -> Markup:
    return h("div", [h("span", h("span", class_=f"swatch {class_}"), text) for class_, text in items], class_="legend")


def alert(tone: str, title: Child, lines: Sequence[Child]) -> Markup:
    """What must be read first. Tone: ok, info, warning or error."""
    listed = h("ul", [h("li", line) for line in lines]) if lines else None
    icon = h("span", ICONS[tone], class_="icon", aria_hidden="true")
    return h("div", icon, h("div", h("strong", title), listed), class_=f"alert {tone}", role="status")
