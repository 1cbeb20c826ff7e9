"""From another tool's requests or sums to a ResultDoc: what all importers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evaluation.metrics import definitions
from evaluation.metrics.quantiles import summarize
from evaluation.schema import Counts, Finding, LevelResult, RequestRecord, ResultDoc, Summary, Window

NS = 1_000_000_000
START_KEPT = "the plan's time of each request is not kept, so a wait in the client is not seen"
NO_WINDOW = "completions are divided by the whole time, start and drain included; ours are of a window"


@dataclass
class Imported:
    """One level as another tool tells it. `refused`: metric → why its figure is not ours."""

    rate: float | None = None
    concurrency: int | None = None
    records: list[RequestRecord] = field(default_factory=list)
    metrics: dict[str, Summary] = field(default_factory=dict)  # taken over, where there are no records
    counts: Counts | None = None
    refused: dict[str, str] = field(default_factory=dict)
    server: dict[str, float] = field(default_factory=dict)


def level(imported: Imported, index: int) -> LevelResult:
    """Figures of our definitions. The verdict is undetermined: nobody tested that the level was steady."""
    made = LevelResult(
        index=index,
        rate=imported.rate,
        concurrency=imported.concurrency,
        verdict="undetermined",
        reasons=["imported"],
        server=imported.server,
        findings=[_not_comparable(name, why, index) for name, why in imported.refused.items()],
    )
    if not imported.records:
        made.metrics, made.counts = imported.metrics, imported.counts or Counts()
        return made
    records = sorted(imported.records, key=lambda record: record.intended_ns)
    for record in records:
        record.level = index
    made.counts = Counts(offered=len(records))
    for record in records:
        setattr(made.counts, record.status, getattr(made.counts, record.status) + 1)
    start, end = records[0].intended_ns, records[-1].intended_ns
    seconds = (end - start) / NS
    if seconds > 0:
        # The whole run from its first to its last start: the drain after it is left out, the ramp is not.
        made.window = Window(start_ns=start, end_ns=end + 1, seconds=seconds)
        made.counts.done = sum(1 for record in records if record.end_ns is not None and record.end_ns <= end)
        made.offered_rate, made.done_rate = len(records) / seconds, made.counts.done / seconds
    for name, unit in definitions.UNITS.items():
        if name not in imported.refused:
            values = definitions.values(name, records)
            if len(values):
                made.metrics[name] = summarize(values, unit)
    return made


def _not_comparable(metric: str, why: str, index: int) -> Finding:
    return Finding(
        code="not_comparable",
        severity="info",
        cause=f"{metric}: not comparable, {why}.",
        remedy="Measure it with tursiops-eval run, or compare this figure with results of the same tool only.",
        evidence={"metric": metric, "reason": why},
        level=index,
    )


def document(
    tool: str, version: str, levels: Iterable[Imported], *, started_at: str = "", environment: Mapping[str, object] = {}
) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    """The result with its requests by level."""
    told = list(levels)
    result = ResultDoc(
        id=f"{tool}-{started_at}" if started_at else tool,
        kind="load",
        state="complete",
        started_at=started_at,
        environment={"imported_from": tool, "tool_version": version or "not told", **environment},
        request={"name": f"{tool} {version}".strip()},
        levels=[level(one, index) for index, one in enumerate(told)],
    )
    return result, {index: one.records for index, one in enumerate(told)}


def summary(unit: str, n: int, values: Mapping[str, object], names: Mapping[str, str], factor: float = 1.0) -> Summary:
    """A Summary of `values[names[field]] * factor`; what is missing or no number stays null."""
    made = Summary(unit=unit, n=n)
    for name, key in names.items():
        value = values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            setattr(made, name, value * factor)
    return made


def stream(
    start_ns: int, first_s: float, gaps_s: list[float], tokens: int | None
) -> tuple[list[tuple[int, int]], str | None]:
    """Chunks of a stream whose first event may be an empty role delta, and why TTFT can't be known (null: it can).

    As many events as tokens: one token each. One more: the first was the role alone, so the second is the first
    token. Else the tool can't tell what the first event held, nor how many tokens each did (0: unknown).
    """
    times = [start_ns + int(first_s * NS)]
    for gap in gaps_s:
        times.append(times[-1] + int(gap * NS))
    if tokens is not None and len(times) == tokens + 1:
        return [(time, 1) for time in times[1:]], None
    if tokens is not None and len(times) == tokens:
        return [(time, 1) for time in times], None
    return [(time, 0) for time in times], "an empty first event (the role) may have been taken for the first token"
