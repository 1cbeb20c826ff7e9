"""aiperf: `profile_export.jsonl` (a request per line) or `profile_export_aiperf.json` (sums), aiperf 0.7 to 0.14.

Its ITL is (E2EL − TTFT)/(n − 1), our TPOT; its chunk gaps are called ICL here and there. n is by default the client's
own count of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.report.importers.build import NO_WINDOW, NS, START_KEPT, Imported, document, summary
from evaluation.schema import Counts, RequestRecord, ResultDoc

NAME = "aiperf"
CLIENT_COUNT = "n is the client's own count of tokens (re-tokenized text), not the server's usage"
USAGE = "usage_completion_tokens"
STATISTICS = {"mean": "avg", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "min": "min", "max": "max"}


def is_sums(found: Any) -> bool:
    if not isinstance(found, dict):
        return False
    return "aiperf_version" in found or (
        isinstance(found.get("request_latency"), dict) and "unit" in found["request_latency"]
    )


def is_requests(found: Any) -> bool:
    return isinstance(found, dict) and "request_start_ns" in (found.get("metadata") or {}) and "metrics" in found


def read_requests(lines: Sequence[Mapping[str, Any]]) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    """The file tells neither rate nor concurrency: they are in profile_export_aiperf.json beside it."""
    made = _refusing()
    measured = [line for line in lines if line["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    made.records = [_record(index, line) for index, line in enumerate(measured)]
    if any(USAGE not in (line.get("metrics") or {}) for line in measured if not line.get("error")):
        made.refused |= {"tpot": CLIENT_COUNT, "output_tokens": CLIENT_COUNT}
    return document(NAME, "", [made])


def read_sums(told: Mapping[str, Any]) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    made = _refusing()
    made.rate, made.concurrency = load_of(told)
    ok, failed = (_scalar(told, name) for name in ("request_count", "error_request_count"))
    made.counts = Counts(offered=ok + failed, ok=ok, error=failed)
    made.refused |= {"tpot": CLIENT_COUNT, "output_tokens": CLIENT_COUNT, "done_rate": NO_WINDOW}
    for ours, theirs in (("ttft", "time_to_first_token"), ("e2el", "request_latency"), ("icl", "inter_chunk_latency")):
        if isinstance(told.get(theirs), dict):
            factor = {"ms": 1.0, "us": 1e-3, "sec": 1e3, "s": 1e3, "ns": 1e-6}[str(told[theirs].get("unit", "ms"))]
            made.metrics[ours] = summary("ms", ok, told[theirs], STATISTICS, factor)
    if told.get("goodput") is not None:
        made.refused["goodput"] = "it counts from the actual start, over the whole time"
    start = str(told.get("start_time") or "")
    return document(NAME, str(told.get("aiperf_version", "")), [made], started_at=start)


def load_of(told: Mapping[str, Any]) -> tuple[float | None, int | None]:
    """Rate and concurrency of `input_config`, which nests them by version."""
    found: dict[str, Any] = {}
    stack = [told.get("input_config") or {}]
    while stack:
        part = stack.pop()
        for name, value in part.items():
            if isinstance(value, dict):
                stack.append(value)
            elif name in ("request_rate", "concurrency") and isinstance(value, int | float):
                found.setdefault(name, value)
    rate = found.get("request_rate")
    return (float(rate), None) if rate else (None, int(found["concurrency"]) if found.get("concurrency") else None)


def _refusing() -> Imported:
    refused = {"ttft_intended": START_KEPT, "e2el_intended": START_KEPT, "send_lag": START_KEPT}
    return Imported(refused=refused | {"itl": "their ITL is an average per request", "tokens_per_chunk": CLIENT_COUNT})


def _scalar(told: Mapping[str, Any], name: str) -> int:
    found = told.get(name)
    return int(found.get("avg") or 0) if isinstance(found, dict) else 0


def _record(index: int, line: Mapping[str, Any]) -> RequestRecord:
    metadata, metrics = line["metadata"], line.get("metrics") or {}
    start = int(metadata["request_start_ns"])
    record = RequestRecord(
        index=index,
        intended_ns=start,
        sent_ns=start,
        turn=int(metadata.get("turn_index") or 0),
        end_ns=metadata.get("request_end_ns"),
        prompt_tokens=_value(metrics, "input_sequence_length"),
        output_tokens=_value(metrics, USAGE),
    )
    error = line.get("error")
    first = (metrics.get("time_to_first_token") or {}).get("value")
    if error or first is None:
        record.status = "cancelled" if metadata.get("was_cancelled") else "error"
        record.error = f"{(error or {}).get('code', 'no_token')}: {(error or {}).get('message', 'no first token')}"
        return record
    at = start + int(first * NS / 1000)
    record.first_ns, record.chunks = at, [(at, 0)]
    for gap in (metrics.get("inter_chunk_latency") or {}).get("value") or []:
        at += int(gap * NS / 1000)
        record.chunks.append((at, 0))
    return record


def _value(metrics: Mapping[str, Any], name: str) -> int | None:
    found = (metrics.get(name) or {}).get("value")
    return int(found) if isinstance(found, int | float) else None
