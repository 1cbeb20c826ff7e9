"""`vllm bench serve --save-result`: one object, or one per line with --append-result (vllm/benchmarks/serve.py, 2026).

With --save-detailed each request's times are there, and our figures are computed from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation.report.importers.build import NO_WINDOW, NS, START_KEPT, Imported, document, stream, summary
from evaluation.schema import Counts, RequestRecord, ResultDoc, Summary

NAME = "vllm bench serve"
STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
CHAT = "openai-chat"


def is_ours(found: Any) -> bool:
    return isinstance(found, dict) and {"backend", "num_prompts", "completed", "request_throughput"} <= found.keys()


def read(lines: list[Mapping[str, Any]]) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    first = lines[0]
    date = str(first.get("date", ""))
    told = {"model": first.get("model_id"), "backend": first.get("backend"), "tokenizer": first.get("tokenizer_id")}
    return document(NAME, "", [_level(line) for line in lines], started_at=date, environment=told)


def _level(told: Mapping[str, Any]) -> Imported:
    rate, most = told.get("request_rate"), told.get("max_concurrency")
    closed = rate in ("inf", None)
    made = Imported(
        rate=None if closed else float(rate),  # type: ignore[arg-type]  # `closed` holds the other cases
        concurrency=int(most or told["num_prompts"]) if closed else None,
        refused={"ttft_intended": START_KEPT, "e2el_intended": START_KEPT, "send_lag": START_KEPT},
    )
    made.refused["tokens_per_chunk"] = "tokens of each event are not kept"
    if "spec_decode_acceptance_length" in told:
        made.server["acceptance_length"] = float(told["spec_decode_acceptance_length"])
    if all(isinstance(told.get(name), list) for name in ("ttfts", "itls", "output_lens", "start_times")):
        _requests(made, told)
    else:
        _sums(made, told)
    if told.get("request_goodput") is not None:
        made.refused["goodput"] = "it counts from the actual start, and a request without TPOT as one that met it"
    return made


def _requests(made: Imported, told: Mapping[str, Any]) -> None:
    errors = told.get("errors") or [""] * len(told["ttfts"])
    unknown = None
    for index, (first, gaps, tokens, start) in enumerate(
        zip(told["ttfts"], told["itls"], told["output_lens"], told["start_times"], strict=True)
    ):
        sent = int(start * NS)
        record = RequestRecord(index=index, intended_ns=sent, sent_ns=sent, prompt_tokens=told["input_lens"][index])
        if errors[index] or not tokens:
            record.status, record.error = "error", str(errors[index] or "no tokens")
            made.records.append(record)
            continue
        record.chunks, why = stream(sent, first, gaps, tokens)
        if why is not None and told.get("backend") == CHAT:
            unknown = why
        record.first_ns, record.end_ns = record.chunks[0][0], record.chunks[-1][0]
        record.output_tokens = tokens
        made.records.append(record)
        if why is not None:
            made.refused["itl"] = "events held several tokens, and how many each held is not kept; see icl"
    if unknown is not None:
        made.refused |= {"ttft": unknown, "tpot": unknown}


def _sums(made: Imported, told: Mapping[str, Any]) -> None:
    made.counts = Counts(offered=told["completed"] + told.get("failed", 0), ok=told["completed"])
    made.counts.error = int(told.get("failed", 0))
    made.refused["done_rate"] = NO_WINDOW
    # What they call ITL are gaps between events: our ICL.
    for name, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("e2el", "e2el"), ("icl", "itl")):
        found = _summary(told, theirs, made.counts.ok)
        if found.mean is not None or found.p50 is not None:
            made.metrics[name] = found
    made.refused["itl"] = "their ITL are gaps between events; it is icl here"
    if told.get("backend") == CHAT:
        why = "in chat the first event may be the role alone; run it with --save-detailed"
        for name in ("ttft", "tpot"):
            made.metrics.pop(name, None)
            made.refused[name] = why


def _summary(told: Mapping[str, Any], theirs: str, n: int) -> Summary:
    return summary("ms", n, told, {name: f"{key}_{theirs}_ms" for name, key in STATISTICS.items()})
