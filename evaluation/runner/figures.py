"""A level's result from its records: the window's counts, metrics, objectives, series. No clock and no network."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from evaluation.metrics import definitions, goodput
from evaluation.metrics.quantiles import summarize
from evaluation.metrics.stats import clopper_pearson
from evaluation.runner.steady import Assessment, Columns, S, columns_of
from evaluation.schema import Counts, Decision, Health, LevelResult, Objective, RequestRecord, Summary, Window

TOLERATED = 0.01  # of the least limit
OPEN_LOOP = ("ttft_intended", "e2el_intended")


def level_result(
    records: Sequence[RequestRecord],
    window: Window,
    assessment: Assessment,
    *,
    index: int,
    rate: float | None,
    objectives: Sequence[Objective],
    concurrency: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    health: Health | None = None,
    arrivals: Columns | None = None,
) -> LevelResult:
    """Everything that the records alone can tell.

    records: of the whole level. arrivals: of the schedule, answered or not; None: the records are all.
    """
    columns = arrivals or columns_of(records)
    health = health or Health()
    chosen = sorted(
        (one for one in records if window.start_ns <= one.intended_ns < window.end_ns), key=lambda one: one.intended_ns
    )
    judged = [goodput.judge(chosen, objective, confidence) for objective in objectives]
    verdict = assessment.verdict if health.healthy else "invalid"
    result = LevelResult(
        index=index,
        rate=rate,
        concurrency=concurrency,
        verdict=verdict,
        seed=seed,
        window=window,
        counts=_counts(records, chosen, columns, window),
        objectives=judged,
        decision=_decision(verdict, [one.decision for one in judged], chosen),
        metrics=_metrics(chosen, records, window, closed=concurrency is not None),
        checks=assessment.checks | _alone(chosen, objectives, confidence),
        reasons=[*assessment.reasons, *health.reasons],
        health=health,
        series=_series(records, columns, window),
    )
    result.offered_rate = result.counts.offered / window.seconds if window.seconds else None
    result.done_rate = result.counts.done / window.seconds if window.seconds else None
    if objectives and window.seconds:
        good = goodput.good(chosen, objectives)
        counted = [one for one in chosen if one.status != "cancelled"]
        result.goodput = good / window.seconds
        result.attainment = good / len(counted) if counted else None
    return result


def tolerate(health: Health, objectives: Sequence[Objective]) -> Health:
    """A lag that is small against every limit that is judged does not make the level invalid; it stays told.

    Latencies of the objectives count from the intended start, so the lag is in them: it can only make them longer.
    """
    limits = [one.limit_ms for one in objectives if one.start == "intended" and one.metric in ("ttft", "e2el")]
    if len(limits) < max(1, len(objectives)):
        return health
    lags = {"pacing_lag": health.pacing_p99_ms, "loop_lag": health.loop_p99_ms}
    small = [code for code in health.reasons if code in lags and (lags[code] or 0.0) <= TOLERATED * min(limits)]
    reasons = [code for code in health.reasons if code not in small]
    return msgspec.structs.replace(health, reasons=reasons, tolerated=small, healthy=not reasons)


def _decision(verdict: str, decisions: Sequence[Decision], chosen: Sequence[RequestRecord]) -> Decision:
    """A pass needs a steady level; a surely missed objective fails without one. Without objectives an error storm
    fails."""
    if verdict == "invalid":
        return "undetermined"
    if verdict == "overloaded":
        return "fail"
    if not decisions:
        failed = sum(one.status in goodput.FAILED for one in chosen)
        sound: Decision = "pass" if failed <= goodput.FAILED_SHARE * len(chosen) else "fail"
        return sound if verdict == "steady" else "undetermined"
    together = goodput.together(decisions)
    return "undetermined" if together == "pass" and verdict != "steady" else together


def _counts(
    records: Sequence[RequestRecord], chosen: Sequence[RequestRecord], columns: Columns, window: Window
) -> Counts:
    edges = np.array([window.start_ns, window.end_ns])
    before, after = columns.in_flight(edges).tolist()
    counts = Counts(
        offered=len(columns.within(window.start_ns, window.end_ns).arrivals),
        done=int(((columns.end >= window.start_ns) & (columns.end < window.end_ns)).sum()),
        warm_up=sum(record.intended_ns < window.start_ns for record in records),
        in_flight_start=int(before),
        in_flight_end=int(after),
    )
    for record in chosen:
        setattr(counts, record.status, getattr(counts, record.status) + 1)
    return counts


def _metrics(
    chosen: Sequence[RequestRecord], records: Sequence[RequestRecord], window: Window, *, closed: bool
) -> dict[str, Summary]:
    found = {
        name: summarize(definitions.values(name, chosen), unit)
        for name, unit in definitions.UNITS.items()
        if not (closed and name in (*OPEN_LOOP, "send_lag"))
    }
    generated = [
        tokens
        for record in records
        for time, tokens in record.chunks
        if window.start_ns <= time < window.end_ns and record.status != "cancelled"
    ]
    if window.seconds:
        found["output_tokens_per_s"] = Summary(
            unit="tokens/s", n=len(generated), mean=sum(generated) / window.seconds if generated else None
        )
    return found


def _alone(
    chosen: Sequence[RequestRecord], objectives: Sequence[Objective], confidence: float
) -> dict[str, float | None]:
    """Requests that no other overlapped: where they miss an objective for sure, no rate is low enough.

    `alone_fails` is 1 where the lower bound of their share of misses is above what the quantile allows.
    """
    alone, busy_until = [], -1
    for record, following in zip(chosen, [*chosen[1:], None], strict=True):
        end = record.end_ns or record.intended_ns
        if record.intended_ns >= busy_until and (following is None or following.intended_ns >= end):
            alone.append(record)
        busy_until = max(busy_until, end)
    fails = False
    for objective in objectives:
        met = [value for value in (goodput.meets(record, objective) for record in alone) if value is not None]
        if met:
            fails |= clopper_pearson(met.count(False), len(met), confidence)[0] > 1 - objective.quantile
    return {"alone": float(len(alone)), "alone_fails": float(fails)}


def _series(records: Sequence[RequestRecord], columns: Columns, window: Window) -> dict[str, list[float | None]]:
    """Per second of the whole level, from its first arrival on; times count from the window's start."""
    if not len(columns.arrivals):
        return {}
    first = int(columns.arrivals[0])
    last = max(window.end_ns, *(record.end_ns or 0 for record in records)) if records else window.end_ns
    seconds = max(1, -(-(last - first) // S))
    edges = first + np.arange(seconds + 1) * S
    offered = np.diff(np.searchsorted(columns.arrivals, edges))
    done = np.diff(np.searchsorted(np.sort(columns.end), edges))
    delays: list[list[float]] = [[] for _ in range(seconds)]
    for record in records:
        value = definitions.ttft(record, "intended")
        place = (record.intended_ns - first) // S
        if value is not None and 0 <= place < seconds:
            delays[place].append(value)
    return {
        "t_s": [round(float(edge - window.start_ns) / S, 3) for edge in edges[:-1]],
        "offered": [float(count) for count in offered],
        "done": [float(count) for count in done],
        "in_flight": [float(count) for count in columns.in_flight(edges[1:])],
        "ttft_ms": [float(np.mean(values)) if values else None for values in delays],
    }
