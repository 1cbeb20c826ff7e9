"""Findings: what casts doubt on the figures stands first, then cause, evidence and remedy of each."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.report.html.finding_texts import CHINESE
from evaluation.report.html.markup import Child, Markup, escape, h
from evaluation.report.html.numbers import number, plain
from evaluation.report.html.parts import alert, card, pill
from evaluation.report.html.texts import both, say, word
from evaluation.report.reading import load_of, shown_level
from evaluation.schema import Finding, ResultDoc

ORDER = {"error": 0, "warning": 1, "info": 2}


def all_findings(result: ResultDoc) -> list[Finding]:
    """The run's and its levels', the grave first; one that a level repeats from the run is told once."""
    found: dict[tuple[str, int | None], Finding] = {}
    for finding in result.findings:
        found.setdefault((finding.code, finding.level), finding)
    for level in result.levels:
        for finding in level.findings:
            found.setdefault((finding.code, level.index if finding.level is None else finding.level), finding)
    return sorted(found.values(), key=lambda finding: ORDER[finding.severity])


def sentence(finding: Finding, part: str) -> Markup:
    """Cause or remedy in both languages; a code without Chinese, or whose evidence lacks a value, stays English."""
    english = str(getattr(finding, part))
    written = CHINESE.get(finding.code, {}).get(part)
    if written is None:
        return escape(english)
    shown = {name: escape(plain(value)) for name, value in finding.evidence.items()}
    try:
        chinese = Markup(escape(written).format(**shown))
    except (KeyError, IndexError):
        return escape(english)
    return both((english, chinese))


def alerts(result: ResultDoc) -> Markup:
    """Before anything else: whether the figures may be used at all, and those of which levels may not."""
    found = all_findings(result)
    shown = shown_level(result)
    graves = [finding for finding in found if finding.severity == "error"]
    here = [f for f in graves if f.level is None or (shown is not None and f.level == shown.index)]
    elsewhere = [finding for finding in graves if finding not in here]
    warnings = [finding for finding in found if finding.severity == "warning"]
    lines: list[Markup] = []
    if result.state == "incomplete":
        lines.append(alert("error", say("alert.incomplete"), []))
    if result.state == "running":
        lines.append(alert("info", say("alert.running"), []))
    if result.verdict == "invalid" or here:
        reasons = [word("reason", reason) for level in result.levels for reason in level.health.reasons]
        told: list[Child] = [_line(result, finding) for finding in here] or list(dict.fromkeys(reasons))
        lines.append(alert("error", say("alert.invalid"), told))
    if elsewhere:
        lines.append(alert("warning", say("alert.levels"), _grouped(result, elsewhere)))
    if warnings:
        lines.append(alert("warning", say("alert.warning"), _grouped(result, warnings)))
    if not lines:
        lines.append(alert("ok", say("alert.none"), []))
    return h("div", lines, class_="alerts")


def _grouped(result: ResultDoc, found: Sequence[Finding]) -> list[Child]:
    """One line per code, with the levels that have it; the values are those of the first."""
    by_code: dict[str, list[Finding]] = {}
    for finding in found:
        by_code.setdefault(finding.code, []).append(finding)
    lines: list[Child] = []
    for same in by_code.values():
        places = [place for place in (_where(result, finding) for finding in same) if place]
        listed: list[Child] = [[", " if index else "", place] for index, place in enumerate(places)]
        lines.append([sentence(same[0], "cause"), h("small", " (", listed, ")", class_="muted") if places else None])
    return lines


def _line(result: ResultDoc, finding: Finding) -> Markup:
    place = _where(result, finding)
    return h("span", sentence(finding, "cause"), h("small", " (", place, ")", class_="muted") if place else None)


def _where(result: ResultDoc, finding: Finding) -> Child:
    level = next((level for level in result.levels if level.index == finding.level), None)
    if level is None or load_of(level) is None:
        return None
    key = "at_concurrency" if level.rate is None else "at_rate"
    return say("finding.at", load=say(key, load=number(load_of(level))))


def section(result: ResultDoc) -> Markup:
    """One card per code; the evidence of each level that has it."""
    found = all_findings(result)
    if not found:
        return card(say("findings.title"), h("p", say("findings.none"), class_="muted"))
    kinds = dict.fromkeys((finding.severity, finding.code) for finding in found)
    cards = [_card(result, [f for f in found if (f.severity, f.code) == kind]) for kind in kinds]
    return card(say("findings.title"), *cards)


def _card(result: ResultDoc, same: Sequence[Finding]) -> Markup:
    first = same[0]
    evidence = [h("div", _place(result, finding) if len(same) > 1 else None, _chips(finding)) for finding in same]
    if len(same) > 3:
        evidence = [h("details", h("summary", say("finding.levels", count=len(same))), evidence)]
    rows = [
        (say("finding.cause"), sentence(first, "cause")),
        (say("finding.evidence"), evidence if any(finding.evidence for finding in same) else None),
        (say("finding.remedy"), sentence(first, "remedy")),
    ]
    head = h(
        "h3", pill(first.severity), " ", h("code", first.code), " ", _place(result, first) if len(same) == 1 else None
    )
    body = h("dl", [(h("dt", name), h("dd", value)) for name, value in rows if value])
    return h("article", head, body, class_=f"finding {first.severity}")


def _place(result: ResultDoc, finding: Finding) -> Child:
    where = _where(result, finding)
    return h("small", where, " ", class_="muted") if where else None


def _chips(finding: Finding) -> list[Markup]:
    return [
        h("span", h("span", name.replace("_", " "), class_="muted"), " ", plain(value), class_="chip")
        for name, value in finding.evidence.items()
        if value is not None
    ]
