"""summary.csv: one row per level of a load result, or one per figure of a quality result. Units are in the names."""

from __future__ import annotations

import csv
import io

from evaluation.quality.results import QualityResult
from evaluation.report.reading import QUANTILES, failed, in_order
from evaluation.schema import LevelResult, ResultDoc

STATISTICS = ("n", "mean", *QUANTILES)


def summary_csv(result: ResultDoc) -> str:
    """RFC 4180 with a header; empty where nothing was measured. The same columns in each row."""
    rows = _quality(result.quality) if result.quality is not None else [_level(level) for level in in_order(result)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(["run", "definitions", *columns])
    for row in rows:
        cells = [row.get(name) for name in columns]
        writer.writerow([_cell(result.id), result.definitions, *map(_cell, cells)])
    return file.getvalue()


def _cell(value: object) -> object:
    """Text that a spreadsheet would compute is prefixed with an apostrophe."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def _level(level: LevelResult) -> dict[str, object]:
    row: dict[str, object] = {
        "level": level.index,
        "rate_per_s": level.rate,
        "concurrency": level.concurrency,
        "verdict": level.verdict,
        "decision": level.decision,
        "reasons": " ".join(level.reasons),
        "seed": level.seed,
        "window_s": level.window.seconds if level.window else None,
        "offered": level.counts.offered,
        "ok": level.counts.ok,
        "failed": failed(level),
        "offered_per_s": level.offered_rate,
        "done_per_s": level.done_rate,
        "goodput_per_s": level.goodput,
        "attainment": level.attainment,
        "prefix_expected": level.prefix.expected,
        "prefix_measured": level.prefix.measured,
        "client_healthy": level.health.healthy,
    }
    for name, summary in level.metrics.items():
        for statistic in STATISTICS:
            unit = "" if statistic == "n" else f"_{summary.unit}"
            row[f"{name}_{statistic}{unit}"] = getattr(summary, statistic)
    return row


def _quality(quality: QualityResult) -> list[dict[str, object]]:
    return [
        {
            "task": task.name,
            "kind": task.kind,
            "figure": name,
            "primary": name == task.primary,
            "value": figure.value,
            "low": figure.low,
            "high": figure.high,
            "unit": figure.unit,
            "n": figure.n,
            "items": task.items,
            "errors": task.errors,
            "state": task.state,
            "chance": task.chance,
        }
        for task in quality.tasks
        for name, figure in task.figures.items()
    ]
