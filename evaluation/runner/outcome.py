"""What a run says of itself: its verdict, where it was measured, and a level in one line."""

from __future__ import annotations

import os
import platform
from typing import Any, Literal

from evaluation.schema import Finding, LevelResult, ResultDoc, RunSpec


def verdict(result: ResultDoc) -> Literal["pass", "fail", "undetermined", "invalid"]:
    """Of a search: whether a rate was certified. Of a load: whether every level passes."""
    levels = result.levels
    if levels and all(level.verdict == "invalid" for level in levels):
        return "invalid"
    if result.capacity is not None:
        said = result.capacity.decision
        if said in ("certified", "open_above"):
            return "pass"
        return "fail" if said == "unreachable" else "undetermined"
    if any(level.decision == "fail" for level in levels):
        return "fail"
    return "pass" if levels and all(level.decision == "pass" for level in levels) else "undetermined"


def environment(spec: RunSpec, server: dict[str, float]) -> dict[str, Any]:
    """Where and with what was measured."""
    found: dict[str, Any] = {
        "client": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "processes": spec.processes,
        },
        "endpoint": {"url": spec.endpoint.url, "model": spec.endpoint.model, "api": spec.endpoint.api},
        "server_metrics": sorted(server),
    }
    if "kv_total" in server:
        found["endpoint"]["kv_blocks"] = server["kv_total"]
    return found


def line_of(level: LevelResult) -> str:
    """A level in one line of text."""
    place = f"{level.rate:.4g} req/s" if level.rate else f"concurrency {level.concurrency}"
    failed = level.counts.error + level.counts.timeout + level.counts.cut
    parts = [f"level {level.index + 1}: {place}: {level.verdict}, {level.decision}"]
    parts += [f"{level.counts.ok} ok, {failed} failed"]
    parts += [
        f"P{one.quantile * 100:g} {one.metric} <= {one.limit_ms:g} ms missed by {one.k} of {one.n} "
        f"({one.lower:.2%} to {one.upper:.2%})"
        for one in level.objectives
    ]
    parts += [", ".join(level.reasons)] if level.reasons else []
    return "; ".join(parts)


def charted(level: LevelResult) -> list[tuple[str, float]]:
    """(name, value) of what a live chart shows, one point per level."""
    values = {"rate": level.rate, "done_rate": level.done_rate, "attainment": level.attainment}
    for name in ("ttft_intended", "e2el_intended", "ttft", "e2el", "tpot"):
        summary = level.metrics.get(name)
        if summary is not None:
            values |= {f"{name}_p50_ms": summary.p50, f"{name}_p99_ms": summary.p99}
    return [(name, value) for name, value in values.items() if value is not None]


def duplicates(result: ResultDoc) -> Finding:
    """Of a data set that declares them; another is refused."""
    return Finding(
        code="duplicate_prompts",
        severity="warning",
        cause="Prompts of the data set are identical to others, as it declares: the prefix cache answers for the "
        "model there.",
        remedy="Read the figures as those of traffic that repeats itself.",
        evidence={"duplicates": result.dataset.duplicates, "requests": result.dataset.requests},
    )
