"""`guidellm benchmark run --output …json` (report version 1: GenerativeBenchmarksReport, guidellm 0.4 to 2026-09).

Its requests keep the times of the first and the last token and of the plan, so TTFT, E2EL and TPOT are computed anew:
its own TPOT includes the first token. Times are of the wall clock: a step of it would show as a latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from evaluation.report.importers.build import NO_WINDOW, NS, Imported, document
from evaluation.schema import RequestRecord, ResultDoc

NAME = "guidellm"
AVERAGES = "only the average gap of each request is kept, no single gaps"
STATUS: dict[str, Literal["ok", "error", "cancelled"]] = {
    "successful": "ok",
    "errored": "error",
    "incomplete": "cancelled",
}


def is_ours(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("benchmarks"), list):
        return False
    return "guidellm_version" in (found.get("metadata") or {}) or "args" in found


def read(report: Mapping[str, Any]) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    metadata = report.get("metadata") or {}
    levels = [_level(benchmark) for benchmark in report["benchmarks"]]
    args = report.get("args") or {}
    told = {"model": args.get("model"), "target": args.get("target"), "platform": metadata.get("platform")}
    return document(NAME, str(metadata.get("guidellm_version", "")), levels, environment=told)


def _level(benchmark: Mapping[str, Any]) -> Imported:
    strategy = (benchmark.get("config") or {}).get("strategy") or {}
    kind, rate = strategy.get("type_", ""), strategy.get("rate")
    streams = strategy.get("streams") or strategy.get("max_concurrency")
    open_loop = kind in ("constant", "poisson", "trace_replay") and rate is not None
    made = Imported(
        rate=float(rate) if open_loop and rate is not None else None,
        concurrency=None if open_loop else int(streams or 1) if kind != "throughput" or streams else None,
        refused={
            "itl": AVERAGES,
            "icl": AVERAGES,
            "tokens_per_chunk": "how many tokens each event held is not kept",
            "requests_per_second": NO_WINDOW,
        },
    )
    if not open_loop:
        why = "in closed loop the intended start is when a slot was free"
        made.refused |= {"ttft_intended": why, "e2el_intended": why, "send_lag": why}
    for status, ours in STATUS.items():
        for request in (benchmark.get("requests") or {}).get(status) or []:
            made.records.append(_record(len(made.records), request, ours))
    kept = sum(record.status == "ok" for record in made.records)
    requests_made = ((benchmark.get("scheduler_metrics") or {}).get("requests_made") or {}).get("successful")
    if requests_made is not None and kept < requests_made:
        made.refused["counts"] = f"only a sample of {kept} of {requests_made} successful requests was kept"
    return made


def _record(index: int, request: Mapping[str, Any], status: Literal["ok", "error", "cancelled"]) -> RequestRecord:
    info = request.get("info") or {}
    times = {name: _ns(value) for name, value in (info.get("timings") or {}).items() if not name.endswith("iterations")}
    sent = times.get("request_start") or times.get("resolve_start")
    first, last = times.get("first_token_iteration"), times.get("last_token_iteration")
    if status == "ok" and (first is None or last is None):
        status = "error"
    return RequestRecord(
        index=index,
        intended_ns=times.get("targeted_start") or sent or 0,
        sent_ns=sent,
        first_ns=first,
        chunks=[(first, 0), (last, 0)] if first is not None and last is not None else [],
        end_ns=times.get("request_end") or times.get("resolve_end"),
        status=status,
        error=str(info.get("error") or ("" if status == "ok" else status)),
        turn=int(info.get("turn_index") or 0),
        prompt_tokens=_tokens(request, "input_metrics"),
        output_tokens=_tokens(request, "output_metrics"),
    )


def _ns(value: object) -> int | None:
    return int(value * NS) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tokens(request: Mapping[str, Any], name: str) -> int | None:
    """By the server's usage: guidellm's own count falls back to the number of events, which is no count of tokens."""
    metrics = request.get(name) or {}
    found = metrics.get("total_tokens", metrics.get("text_tokens"))
    return int(found) if found is not None else None
