"""Objectives over a window: who missed, what that certifies, goodput and attainment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.metrics import definitions
from evaluation.metrics.stats import clopper_pearson, effective_n
from evaluation.schema import Decision, Objective, ObjectiveResult, RequestRecord

FAILED = ("error", "timeout", "cut")
FAILED_SHARE = 0.01  # of the requests; more are an error storm


def meets(record: RequestRecord, objective: Objective) -> bool | None:
    """Whether one request met the limit; a failed one has not. None: undefined for it (TPOT of one token). An answer
    without any token misses TTFT and E2EL.

    itl: every gap of the request; gaps of one request depend on each other, so the request is what is counted. One that
    our own stop cut off is a miss where it was late already, else it says nothing.
    """
    if record.status in FAILED:
        return False
    limit = objective.limit_ms
    if record.status == "cancelled":
        return _late_when_cut(record, objective)
    if objective.metric == "itl":
        gaps = definitions.itl(record)
        return all(gap <= limit for gap in gaps) if gaps else None
    if objective.metric == "tpot":
        value = definitions.tpot(record)
        return None if value is None else value <= limit
    measure = definitions.ttft if objective.metric == "ttft" else definitions.e2el
    value = measure(record, objective.start)
    return value is not None and value <= limit


def _late_when_cut(record: RequestRecord, objective: Objective) -> bool | None:
    begin = record.intended_ns if objective.start == "intended" else record.sent_ns
    waits = objective.metric == "e2el" or (objective.metric == "ttft" and record.first_ns is None)
    if not waits or begin is None or record.end_ns is None:
        return None
    return False if (record.end_ns - begin) * definitions.MS > objective.limit_ms else None


def judge(records: Sequence[RequestRecord], objective: Objective, confidence: float = 0.95) -> ObjectiveResult:
    """The binomial decision "`quantile` of the metric <= limit", failed requests being misses.

    records: of one window, by intended start. pass: the upper bound of the share of misses is at most 1 - quantile;
    fail: the lower one is above; else undetermined. Misses of a queue come in clusters: the bounds are those of as many
    independent requests as tell the same (`n_eff`).
    """
    counted = [met for met in (meets(record, objective) for record in records) if met is not None]
    k, n = counted.count(False), len(counted)
    failed = sum(record.status in FAILED for record in records)
    n_eff = effective_n(np.array(counted, dtype=np.float64)) if n else 0.0
    lower, upper = clopper_pearson(k * n_eff / n, n_eff, confidence) if n else (0.0, 1.0)
    allowed = 1 - objective.quantile
    decision: Decision = "undetermined"
    if upper <= allowed + 1e-12:
        decision = "pass"
    elif lower > allowed + 1e-12:
        decision = "fail"
    return ObjectiveResult(
        metric=objective.metric,
        limit_ms=objective.limit_ms,
        quantile=objective.quantile,
        start=objective.start,
        k=k,
        n=n,
        failed=failed,
        n_eff=n_eff,
        lower=lower,
        upper=upper,
        decision=decision,
    )


def together(decisions: Sequence[Decision]) -> Decision:
    """One failed objective fails all; all must pass to pass."""
    if "fail" in decisions:
        return "fail"
    return "pass" if decisions and all(one == "pass" for one in decisions) else "undetermined"


def good(records: Sequence[RequestRecord], objectives: Sequence[Objective]) -> int:
    """Requests that succeeded and met every objective (one that is undefined for a request does not count against)."""
    return sum(
        record.status == "ok" and all(meets(record, objective) is not False for objective in objectives)
        for record in records
    )
