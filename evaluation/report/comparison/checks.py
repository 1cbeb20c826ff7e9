"""May two results be compared? What differs in what they measured, and what makes a good figure a lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaluation.report.comparison.document import Note
from evaluation.report.comparison.runs import Side
from evaluation.report.reading import in_order, load_of
from evaluation.schema import Concurrency, ResultDoc, RunSpec

LOAD = ("load", "search")
SUSPECT = 0.05  # prefix hits beyond what is expected, or beyond the earlier run's


def notes(base: Side, other: Side) -> list[Note]:
    """The grave first."""
    one, two = base.first.result, other.first.result
    found = [*_kinds(one, two), *_state(base), *_state(other), *_workload(one, two), *_caches(one, two)]
    if one.kind in LOAD and two.kind in LOAD and min(len(base.runs), len(other.runs)) < 2:
        found.append(
            Note(
                code="one_run_each",
                severity="info",
                cause="One run of each: intervals hold what varies within a run, not what varies between runs.",
                remedy="Repeat both at least five times, in turns, and give the folders that hold the repeats.",
            )
        )
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda note: order[note.severity])


def _kinds(one: ResultDoc, two: ResultDoc) -> Iterator[Note]:
    if one.kind != two.kind and not (one.kind in LOAD and two.kind in LOAD):
        yield Note(
            code="kinds_differ",
            severity="error",
            cause=f"One is a {one.kind} result, the other a {two.kind} result.",
            remedy="Compare results of one kind.",
        )
    if one.definitions != two.definitions:
        yield Note(
            code="definitions_differ",
            severity="error",
            cause=f"Metric definitions {one.definitions} and {two.definitions}: one name, two meanings.",
            remedy="Measure again with one version, or recompute the older run from its requests.jsonl.",
            evidence={"base": one.definitions, "other": two.definitions},
        )


def _state(side: Side) -> Iterator[Note]:
    for run in side.runs:
        result = run.result
        if result.verdict == "invalid":
            found = [*result.findings, *(finding for level in result.levels for finding in level.findings)]
            codes = sorted({finding.code for finding in found if finding.severity == "error"})
            yield Note(
                code="invalid_run",
                severity="error",
                cause=f"{side.name}: the run found its own figures invalid ({', '.join(codes) or 'no reason kept'}).",
                remedy="Follow the remedy in its report and measure again.",
                evidence={"run": result.id, "findings": codes},
            )
        elif result.state != "complete":
            yield Note(
                code="incomplete_run",
                severity="warning",
                cause=f"{side.name}: the run is {result.state}; only what it had measured is compared.",
                remedy="Resume it: tursiops-eval run --resume FOLDER.",
                evidence={"run": result.id},
            )


def _workload(one: ResultDoc, two: ResultDoc) -> Iterator[Note]:
    if not (isinstance(one.spec, RunSpec) and isinstance(two.spec, RunSpec)):
        if one.kind in LOAD:
            yield Note(
                code="workload_unknown",
                severity="warning",
                cause="One of the results does not tell its data set and arrivals in our terms.",
                remedy="See that both sent prompts and answers of the same lengths, in the same way.",
            )
        return
    a, b = one.spec, two.spec
    if a.dataset != b.dataset:
        yield Note(
            code="datasets_differ",
            severity="error",
            cause="The runs sent different workloads: latency depends on the lengths of prompts and answers.",
            remedy="Run both with one `dataset`.",
            evidence=_changed(a.dataset, b.dataset),
        )
    elif one.dataset.sha256 != two.dataset.sha256:
        yield Note(
            code="prompts_differ",
            severity="info",
            cause="Same law of the data set, other prompts (another seed, or another number): requests are not paired.",
        )
    if isinstance(a.load, Concurrency) != isinstance(b.load, Concurrency):
        yield Note(
            code="loops_differ",
            severity="error",
            cause="One run is open loop, the other closed: a closed loop slows down with the server.",
            remedy="Load both by rate.",
        )
    elif not isinstance(a.load, Concurrency) and not isinstance(b.load, Concurrency):
        shapes = [(load.arrivals, load.burstiness, load.states) for load in (a.load, b.load)]
        if shapes[0] != shapes[1]:
            yield Note(
                code="arrivals_differ",
                severity="error",
                cause=f"Arrivals '{a.load.arrivals}' and '{b.load.arrivals}': burstier arrivals wait longer.",
                remedy="Run both with one law of arrivals.",
                evidence=_changed(a.load, b.load),
            )
    if a.slo != b.slo or (not a.slo and a.scenario != b.scenario):
        yield Note(
            code="objectives_differ",
            severity="warning",
            cause="The objectives differ: goodput, attainment and capacity are not compared.",
            remedy="Judge both by one `slo`.",
        )
    if (a.endpoint.url, a.endpoint.model, a.endpoint.api) != (b.endpoint.url, b.endpoint.model, b.endpoint.api):
        yield Note(
            code="endpoints_differ",
            severity="info",
            cause="The runs asked different endpoints or models.",
            evidence=_changed(a.endpoint, b.endpoint),
        )
    if a.endpoint.extra_body != b.endpoint.extra_body:
        yield Note(
            code="bodies_differ",
            severity="warning",
            cause="The requests' bodies differ (temperature, ignore_eos …): answers may differ in length.",
            remedy="Use one `endpoint.extra_body`.",
            evidence=_changed(a.endpoint.extra_body, b.endpoint.extra_body),
        )
    changed = _changed(_flat(one.environment), _flat(two.environment))
    if changed:
        yield Note(code="environments_differ", severity="info", cause="The environments differ.", evidence=changed)


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    """Without the endpoint, which is compared by itself."""
    flat: dict[str, Any] = {}
    for name, value in environment.items():
        if isinstance(value, dict):
            flat |= {f"{name} {inner}": each for inner, each in value.items() if (name, inner) != ("endpoint", "url")}
        else:
            flat[name] = value
    return flat


def _changed(one: Any, two: Any) -> dict[str, Any]:
    """{field: "before → after"} of two structs or mappings."""
    left, right = (
        value if isinstance(value, dict) else {name: getattr(value, name) for name in value.__struct_fields__}
        for value in (one, two)
    )
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    changed = {name: f"{left.get(name)} → {right.get(name)}" for name in names}
    return changed if changed or type(one) is type(two) else {"kind": f"{type(one).__name__} → {type(two).__name__}"}


def _caches(one: ResultDoc, two: ResultDoc) -> Iterator[Note]:
    """The same prompts at the same server: the later run may read what the earlier one left in the prefix cache."""
    if not (isinstance(one.spec, RunSpec) and isinstance(two.spec, RunSpec)) or one.kind not in LOAD:
        return
    same_server = (one.spec.endpoint.url, one.spec.endpoint.model) == (two.spec.endpoint.url, two.spec.endpoint.model)
    same_prompts = one.seed == two.seed and one.spec.dataset == two.spec.dataset
    if not (same_server and same_prompts) or one.id == two.id:
        return
    early, late = sorted((one, two), key=lambda result: result.started_at)
    before, after, expected = _hits(early, late)
    evidence = {"seed": one.seed, "earlier": early.id, "later": late.id, "hits_before": before, "hits_after": after}
    if after is None or before is None:
        yield Note(
            code="cache_suspicion",
            severity="warning",
            cause="The same seed met the same server, which does not tell its prefix hits: the later run may be faster "
            "only because its prompts were cached.",
            remedy="Run with a fresh seed (leave `seed` out), or reset the prefix cache between the runs.",
            evidence=evidence,
        )
    elif after - before > SUSPECT or (expected is not None and after - expected > SUSPECT):
        yield Note(
            code="cache_inflated",
            severity="error",
            cause="The later run's prompts came from the prefix cache that the earlier one filled: its figures are "
            "better than the server is.",
            remedy="Run with a fresh seed (leave `seed` out), or reset the prefix cache between the runs.",
            evidence=evidence | {"expected": expected},
        )


def _hits(early: ResultDoc, late: ResultDoc) -> tuple[float | None, float | None, float | None]:
    """Measured share of cached prompt tokens of both at their first common level, and what the later expected."""
    before = {load_of(level): level.prefix for level in in_order(early)}
    for level in in_order(late):
        if load_of(level) in before:
            return before[load_of(level)].measured, level.prefix.measured, level.prefix.expected
    return None, None, None
