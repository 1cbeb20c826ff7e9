"""gates.junit.xml: what a pipeline must know. Undetermined is not passed: it is a failure of its own type."""

from __future__ import annotations

from xml.etree import ElementTree as xml

from evaluation.quality.results import GateResult
from evaluation.report.reading import best_level, in_order, metric_name, objective_value, quantile_name
from evaluation.schema import LevelResult, ObjectiveResult, ResultDoc


def junit(result: ResultDoc) -> bytes:
    """One suite: a search's capacity, a load test's objectives per level, a quality run's gates; and one case that
    fails where the figures must not be used."""
    suite = xml.Element("testsuite", name=f"tursiops.{result.kind}", id=_clean(result.id))
    if result.started_at:
        suite.set("timestamp", _clean(result.started_at))
    _validity(suite, result)
    if result.kind == "search":
        _capacity(suite, result)
    else:
        for level in in_order(result):
            _level(suite, level)
    for gate in result.quality.gates if result.quality else []:
        _gate(suite, gate)
    counted = {tag: len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "error", "skipped")}
    suite.set("tests", str(len(suite.findall("testcase"))))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(counted[tag]))
    root = xml.Element("testsuites")
    root.append(suite)
    xml.indent(root)
    return bytes(xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _case(suite: xml.Element, name: str, outcome: str, message: str) -> None:
    case = xml.SubElement(suite, "testcase", classname=str(suite.get("name")), name=_clean(name), time="0")
    if outcome == "pass":
        xml.SubElement(case, "system-out").text = _clean(message)
        return
    tag = {"error": "error", "invalid": "error", "skipped": "skipped"}.get(outcome, "failure")
    xml.SubElement(case, tag, type=outcome, message=_clean(message))


def _clean(text: str) -> str:
    """Characters that XML 1.0 forbids become the replacement character."""
    return "".join(c if c in "\t\n\r" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" else "\ufffd" for c in text)


def _validity(suite: xml.Element, result: ResultDoc) -> None:
    """A search rests on its best level: one beyond what the server carries is part of looking for it."""
    best = best_level(result)
    levels = result.levels if result.kind != "search" else [best] if best else []
    found = [f for f in result.findings if f.level is None] + [f for level in levels for f in level.findings]
    grave = [f for f in found if f.severity == "error"]
    if result.state != "complete":
        _case(suite, "complete", "error", f"the run is {result.state}: it holds what was measured until then")
    if result.verdict == "invalid" or grave:
        reasons = "; ".join(dict.fromkeys(f"{f.code}: {f.cause} {f.remedy}" for f in grave))
        _case(suite, "valid", "invalid", reasons or "the run is invalid")
    else:
        _case(suite, "valid", "pass", "no check casts doubt on the figures")


def _capacity(suite: xml.Element, result: ResultDoc) -> None:
    capacity, best = result.capacity, best_level(result)
    if capacity is None or capacity.low is None:
        decision = capacity.decision if capacity else "undetermined"
        outcome = "fail" if decision == "unreachable" else "undetermined"
        _case(suite, "capacity", outcome, f"no rate could be certified ({decision})")
        return
    above = f", and no longer {capacity.high:g}" if capacity.high is not None else ""
    _case(suite, "capacity", "pass", f"carries {capacity.low:g} requests/s{above} ({capacity.decision})")
    for objective in best.objectives if best else []:
        _objective(suite, f"best point: {_name(objective)}", objective, best)


def _level(suite: xml.Element, level: LevelResult) -> None:
    place = f"{level.rate:g}/s" if level.rate is not None else f"concurrency {level.concurrency}"
    if level.verdict != "steady":
        outcome = {"overloaded": "fail", "invalid": "invalid"}.get(level.verdict, "undetermined")
        _case(suite, f"{place}: steady", outcome, f"{level.verdict}: {', '.join(level.reasons) or 'no reason given'}")
    for objective in level.objectives:
        _objective(suite, f"{place}: {_name(objective)}", objective, level)


def _name(objective: ObjectiveResult) -> str:
    return f"{quantile_name(objective.quantile)} {metric_name(objective)} <= {objective.limit_ms:g} ms"


def _objective(suite: xml.Element, name: str, objective: ObjectiveResult, level: LevelResult | None) -> None:
    value = objective_value(objective, level) if level else None
    measured = f"measured {value:g} ms, " if value is not None else ""
    told = (
        f"{measured}{objective.k} misses of {objective.n} ({objective.failed} failed): their share is between "
        f"{objective.lower:.3%} and {objective.upper:.3%}, allowed {1 - objective.quantile:.3%}"
    )
    _case(suite, name, objective.decision, told)


def _gate(suite: xml.Element, gate: GateResult) -> None:
    """A gate that only informs is skipped where it does not pass."""
    outcome = "skipped" if gate.decision != "pass" and not gate.blocks else gate.decision
    _case(suite, f"{gate.name}: {gate.rule}", outcome, gate.reason)
