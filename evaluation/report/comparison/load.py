"""Figures of load runs at the loads that both measured: ratios with intervals that know that requests are not
independent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evaluation.metrics import definitions
from evaluation.metrics.blocks import block_ratio, ratio_of_intervals
from evaluation.metrics.goodput import good
from evaluation.metrics.paired import Array, Estimate, hodges_lehmann, permutation, statistic
from evaluation.report.comparison.document import Compared
from evaluation.report.comparison.runs import Run, Side
from evaluation.report.reading import failed, in_order, load_of, metric_name, quantile_name
from evaluation.schema import LevelResult, Objective, RequestRecord, ResultDoc

LATENCIES = ("ttft_intended", "e2el_intended", "ttft", "e2el", "tpot")
STATISTICS: tuple[tuple[str, float | None], ...] = (("mean", None), ("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
TAIL = 10  # values beyond a quantile that a bootstrap of it needs
DRAWN = 4_000_000  # values drawn for one figure of one run, in 400 to 2,000 resamples: the error of p stays below 5 %
SAME_LOAD = 0.02  # relative


@dataclass(frozen=True)
class Wanted:
    """A figure of a level: a latency's statistic, or a flow in time."""

    name: str
    statistic: str = ""
    quantile: float | None = None
    unit: str = "ms"
    higher: bool = False

    @property
    def figure(self) -> str:
        return f"{self.name}.{self.statistic}" if self.statistic else self.name

    def series(self, level: LevelResult, records: list[RequestRecord], slo: list[Objective]) -> Array:
        """Values in order of time whose mean or quantile is the figure."""
        if self.name == "attainment":
            return np.array([float(good([record], slo)) for record in records if record.status != "cancelled"])
        if self.name == "succeeded":
            return np.array([float(record.status == "ok") for record in records if record.status != "cancelled"])
        if self.name in ("done", "output_tokens_per_s"):
            return _per_second(level, records, tokens=self.name != "done")
        return definitions.values(self.name, records)


FLOWS = [
    Wanted("attainment", unit="share", higher=True),
    Wanted("succeeded", unit="share", higher=True),
    Wanted("done", unit="per_s", higher=True),
    Wanted("output_tokens_per_s", unit="tokens/s", higher=True),
]


def _per_second(level: LevelResult, records: list[RequestRecord], *, tokens: bool) -> Array:
    """Completions (or tokens) in each whole second of the window, of the requests that began in it. The first seconds
    would show what the window's cut left out, so both flows count from when the first of them ended."""
    ended = [(time, count) for record in records if record.status == "ok" for time, count in _events(record, tokens)]
    if not ended or level.window is None:
        return np.zeros(0)
    start, end = min(time for time, _ in ended), level.window.end_ns
    seconds = int((end - start) / 1e9)
    counted = np.zeros(max(seconds, 0))
    for time, count in ended:
        second = int((time - start) / 1e9)
        if second < seconds:
            counted[second] += count
    return counted


def _events(record: RequestRecord, tokens: bool) -> list[tuple[int, int]]:
    if tokens:
        return record.chunks
    return [(record.end_ns, 1)] if record.end_ns is not None else []


def figures(base: Side, other: Side) -> Iterator[Compared]:
    """At each load that all runs measured; capacities beside them. p is not corrected yet."""
    yield from _capacity(base.first, other.first)
    repeated = min(len(base.runs), len(other.runs)) > 1
    for level in in_order(base.first.result):
        sides = [_at(side, level) for side in (base, other)]
        if load_of(level) is None or not all(sides):
            continue
        if repeated:
            yield from _repeats(level, sides[0], sides[1])
        else:
            yield from _single(sides[0][0], sides[1][0])


def loads(result: ResultDoc) -> list[float]:
    return [load for level in in_order(result) if (load := load_of(level)) is not None]


def common_loads(base: Side, other: Side) -> int:
    return sum(bool(_at(base, level) and _at(other, level)) for level in base.first.result.levels)


At = tuple[Run, LevelResult]


def _at(side: Side, wanted: LevelResult) -> list[At]:
    """Each run's level at a load (the last, where it measured one twice); empty if a run lacks it."""
    load, found = load_of(wanted), []
    for run in side.runs:
        same = [
            level
            for level in run.result.levels
            if load is not None
            and (here := load_of(level)) is not None
            and abs(here / load - 1) <= SAME_LOAD
            and (level.rate is None) == (wanted.rate is None)
        ]
        if not same:
            return []
        found.append((run, same[-1]))
    return found


def _wanted(one: LevelResult, two: LevelResult, slo_same: bool) -> list[Wanted]:
    """From the intended start where both have it: the start that hides no queue of the client's."""
    names = [name for name in LATENCIES if name in one.metrics and name in two.metrics]
    names = [name for name in names if f"{name}_intended" not in names]
    latencies = [Wanted(name, label, q) for name in names for label, q in STATISTICS]
    return latencies + [flow for flow in FLOWS if flow.name != "attainment" or (slo_same and one.objectives)]


def _slo(run: Run) -> list[Objective]:
    judged = next((level.objectives for level in run.result.levels if level.objectives), [])
    if judged:
        return [Objective(metric=o.metric, limit_ms=o.limit_ms, quantile=o.quantile, start=o.start) for o in judged]
    return run.result.spec.slo if run.result.spec is not None else []


def _single(one: At, two: At) -> Iterator[Compared]:
    (base, first), (other, second) = one, two
    records = base.requests(first), other.requests(second)
    slo = _slo(base)
    for wanted in _wanted(first, second, slo == _slo(other)):
        row = _row(wanted, first, second)
        if records[0] and records[1]:
            _by_requests(row, wanted.series(first, records[0], slo), wanted.series(second, records[1], slo), wanted)
        else:
            _by_intervals(row, wanted, first, second)
        if row.base is not None or row.other is not None:
            yield row


def _row(wanted: Wanted, one: LevelResult, two: LevelResult) -> Compared:
    row = Compared(
        figure=wanted.figure,
        unit=wanted.unit,
        better="higher" if wanted.higher else "lower",
        load=load_of(one),
        base_failed=failed(one),
        other_failed=failed(two),
    )
    if "invalid" in (one.verdict, two.verdict):
        row.verdict, row.reason = "not_comparable", "invalid_level"
    elif "overloaded" in (one.verdict, two.verdict) and wanted.unit == "ms":
        row.verdict, row.reason = "not_comparable", "overloaded"
    return row


def _by_requests(row: Compared, left: Array, right: Array, wanted: Wanted) -> None:
    row.base_n, row.other_n = len(left), len(right)
    row.base = float(statistic(left, wanted.quantile)) if len(left) else None
    row.other = float(statistic(right, wanted.quantile)) if len(right) else None
    if row.base is None or row.other is None:
        row.reason = row.reason or "not_measured"
    elif (wanted.quantile and min(len(left), len(right)) * (1 - wanted.quantile) < TAIL) or row.base <= 0:
        row.reason = row.reason or "too_few"
    elif row.verdict != "not_comparable":
        resamples = max(400, min(2_000, DRAWN // max(len(left), len(right))))
        found = block_ratio(left, right, quantile=wanted.quantile, resamples=resamples)
        row.change, row.low, row.high, row.p = found.value, found.low, found.high, found.p
        row.method = "block_bootstrap"


def _kept(wanted: Wanted, level: LevelResult) -> float | None:
    """The figure as the result itself tells it, where the requests were not kept."""
    if wanted.name == "attainment":
        return level.attainment
    if wanted.name == "done":
        return level.done_rate
    if wanted.name == "succeeded":
        return level.counts.ok / level.counts.offered if level.counts.offered else None
    summary = level.metrics.get(wanted.name)
    value = getattr(summary, wanted.statistic or "mean", None)
    return float(value) if value is not None else None


def _by_intervals(row: Compared, wanted: Wanted, one: LevelResult, two: LevelResult) -> None:
    """Where no requests were kept: by the intervals that the results themselves tell."""
    row.base, row.other = _kept(wanted, one), _kept(wanted, two)
    if row.verdict == "not_comparable":
        return
    if row.base and row.other:
        row.change = row.other / row.base
    left, right = _known(wanted, one), _known(wanted, two)
    if left is None or right is None:
        row.reason = "no_requests"
        return
    found = ratio_of_intervals(left, right)
    row.change, row.low, row.high, row.p, row.method = found.value, found.low, found.high, found.p, "intervals"
    row.base_n, row.other_n = one.metrics[wanted.name].n, two.metrics[wanted.name].n


def _known(wanted: Wanted, level: LevelResult) -> Estimate | None:
    """A statistic with its interval, where both ends are told and positive."""
    summary = level.metrics.get(wanted.name)
    value = getattr(summary, wanted.statistic or "mean", None)
    if summary is None or value is None:
        return None
    low, high = (summary.low, summary.high) if wanted.quantile is None else summary.bounds.get(wanted.statistic, (0, 0))
    return Estimate(value, low, high) if low and high and low > 0 else None


def _repeats(level: LevelResult, base: list[At], other: list[At]) -> Iterator[Compared]:
    """One value per run: exact permutation of the runs, and Hodges-Lehmann's shift of their logarithms. Only the
    objectives' figures (else the means), for few runs can't bear many tests."""
    judged = [Wanted(metric_name(o), quantile_name(o.quantile), o.quantile) for o in level.objectives]
    plain = [Wanted(name, "mean") for name in ("ttft_intended", "e2el_intended", "tpot") if name in level.metrics]
    for wanted in [*dict.fromkeys(judged or plain), FLOWS[2]]:
        row = _row(wanted, base[0][1], other[0][1])
        row.base_failed, row.other_failed = (sum(failed(one) for _, one in side) for side in (base, other))
        left, right = ([_kept(wanted, one) for _, one in side] for side in (base, other))
        values = [[value for value in side if value is not None and value > 0] for side in (left, right)]
        row.base_n, row.other_n = len(values[0]), len(values[1])
        if min(map(len, values)) < 2:
            row.reason = "too_few"
            yield row
            continue
        logs = [np.log(side) for side in values]
        shift = hodges_lehmann(logs[0], logs[1])
        row.base, row.other = (float(np.median(side)) for side in values)
        row.change = math.exp(shift.value)
        if math.isfinite(shift.low):
            row.low, row.high = math.exp(shift.low), math.exp(shift.high)
        row.p, row.method = permutation(logs[0], logs[1]), "permutation"
        yield row


def _capacity(one: Run, two: Run) -> Iterator[Compared]:
    """Certified intervals that do not touch differ; each end already has its confidence."""
    a, b = one.result.capacity, two.result.capacity
    if a is None or b is None or not a.low or not b.low:
        return
    row = Compared(figure="capacity", unit="per_s", better="higher", base=a.low, other=b.low, change=b.low / a.low)
    row.method = "certified_intervals"
    if _slo(one) != _slo(two):
        row.verdict, row.reason = "not_comparable", "objectives_differ"
    elif a.high is None or b.high is None:
        row.reason = "open_above"
        row.low = b.low / a.high if a.high else None
        row.high = b.high / a.low if b.high else None
    else:
        row.low, row.high = b.low / a.high, b.high / a.low
    yield row
