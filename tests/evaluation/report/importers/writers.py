"""Files as the other tools write them, of the same simulated requests, each by its own definitions.

Field names and arithmetic follow their sources: vllm/benchmarks/serve.py (vLLM main, 2026-09, commit 009e6d4),
src/guidellm/schemas/{request_stats,info}.py (guidellm, commits 06cef29 and 04fcfd8), aiperf's
docs/tutorials/working-with-profile-exports.md and common/models/export_models.py (commits 13992db, 26240f9), and
evalscope/perf/utils/{db_util,benchmark_util,perf_constants}.py (evalscope, commits 01ee08c, 07dc32f, 0e8f967).
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.schema import RequestRecord

NS = 1e9
ROLE_S = 0.004  # an empty role delta comes so long before the first token


def times(record: RequestRecord, role: bool) -> list[float]:
    """Seconds after sending of each event with `choices`."""
    sent = record.sent_ns
    made = [(time - sent) / NS for time, _ in record.chunks]
    return [made[0] - ROLE_S, *made] if role and made else made


def vllm(found: list[RequestRecord], rate: float, *, chat: bool = False, detailed: bool = True) -> dict[str, Any]:
    ok = [record for record in found if record.status == "ok"]
    streams = [times(record, chat) for record in found]
    good = [stream for stream in streams if stream]
    itls = [list(np.diff(stream)) for stream in streams]
    tpots = [(s[-1] - s[0]) / (r.output_tokens - 1) for s, r in zip(good, ok, strict=True) if r.output_tokens > 1]
    duration = (max(r.end_ns for r in found) - found[0].sent_ns) / NS
    result: dict[str, Any] = {
        "date": "20261130-044000",
        "endpoint_type": "openai-chat" if chat else "vllm",
        "backend": "openai-chat" if chat else "vllm",
        "label": None,
        "model_id": "smollm2",
        "tokenizer_id": "smollm2",
        "num_prompts": len(found),
        "request_rate": rate,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": duration,
        "completed": len(ok),
        "failed": len(found) - len(ok),
        "total_input_tokens": sum(r.prompt_tokens for r in ok),
        "total_output_tokens": sum(r.output_tokens for r in ok),
        "request_throughput": len(ok) / duration,
        "request_goodput": None,
        "output_throughput": sum(r.output_tokens for r in ok) / duration,
    }
    if detailed:
        result |= {
            "input_lens": [r.prompt_tokens for r in found],
            "output_lens": [r.output_tokens or 0 for r in found],
            "ttfts": [stream[0] if stream else 0.0 for stream in streams],
            "itls": itls,
            "latencies": [stream[-1] if stream else 0.0 for stream in streams],
            "start_times": [r.sent_ns / NS for r in found],
            "queue_times": [0.0 for _ in found],
            "generated_texts": ["text" if r.status == "ok" else "" for r in found],
            "errors": [r.error for r in found],
        }
    gaps = [gap for one in itls for gap in one]
    for name, values in (
        ("ttft", [stream[0] for stream in good]),
        ("tpot", tpots),
        ("itl", gaps),
        ("e2el", [stream[-1] for stream in good]),
    ):
        result[f"mean_{name}_ms"] = float(np.mean(values)) * 1000
        result[f"median_{name}_ms"] = float(np.median(values)) * 1000
        result[f"p99_{name}_ms"] = float(np.percentile(values, 99)) * 1000
    return result


def guidellm(found: list[RequestRecord], rate: float) -> dict[str, Any]:
    def request(record: RequestRecord) -> dict[str, Any]:
        ok = record.status == "ok"
        return {
            "type_": "generative_request_stats",
            "request_id": str(record.index),
            "info": {
                "status": "completed" if ok else "errored",
                "turn_index": 0,
                "error": None if ok else record.error,
                "timings": {
                    "targeted_start": record.intended_ns / NS,
                    "queued": record.intended_ns / NS,
                    "resolve_start": record.sent_ns / NS,
                    "request_start": record.sent_ns / NS,
                    "first_token_iteration": record.chunks[0][0] / NS if ok else None,
                    "last_token_iteration": record.chunks[-1][0] / NS if ok else None,
                    "request_iterations": len(record.chunks),
                    "token_iterations": len(record.chunks),
                    "request_end": record.end_ns / NS + 0.002,  # the usage event comes after the last token
                    "resolve_end": record.end_ns / NS + 0.003,
                },
            },
            "input_metrics": {"text_tokens": record.prompt_tokens, "total_tokens": record.prompt_tokens},
            "output_metrics": {"text_tokens": record.output_tokens, "total_tokens": record.output_tokens},
        }

    groups: dict[str, list[Any]] = {"successful": [], "errored": [], "incomplete": []}
    for record in found:
        groups["successful" if record.status == "ok" else "errored"].append(request(record))
    benchmark = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "poisson", "rate": rate, "max_concurrency": None, "random_seed": 42}},
        "scheduler_metrics": {"requests_made": {name: len(each) for name, each in groups.items()}},
        "requests": groups,
    }
    metadata = {"version": 1, "guidellm_version": "0.6.0", "python_version": "3.12.3", "platform": "Linux"}
    args = {"target": "http://localhost:8000", "model": "smollm2"}
    return {"metadata": metadata, "args": args, "benchmarks": [benchmark]}


def aiperf(found: list[RequestRecord], *, usage: bool) -> list[dict[str, Any]]:
    lines = []
    for record in found:
        ok = record.status == "ok"
        stream = times(record, False)
        metadata = {
            "session_num": record.index,
            "x_request_id": f"r{record.index}",
            "turn_index": 0,
            "request_start_ns": record.sent_ns,
            "request_end_ns": record.end_ns,
            "worker_id": "worker_1",
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        if not ok:
            error = {"code": 503, "type": "HTTPError", "message": "busy"}
            lines.append(
                {"metadata": metadata, "metrics": {"error_isl": {"value": 1, "unit": "tokens"}}, "error": error}
            )
            continue
        metrics: dict[str, Any] = {
            "input_sequence_length": {"value": record.prompt_tokens, "unit": "tokens"},
            "time_to_first_token": {"value": stream[0] * 1000, "unit": "ms"},
            "request_latency": {"value": stream[-1] * 1000, "unit": "ms"},
            "inter_chunk_latency": {"value": [gap * 1000 for gap in np.diff(stream)], "unit": "ms"},
            "output_sequence_length": {"value": record.output_tokens - 2, "unit": "tokens"},  # re-tokenized
        }
        if usage:
            metrics["usage_completion_tokens"] = {"value": record.output_tokens, "unit": "tokens"}
        lines.append({"metadata": metadata, "metrics": metrics, "error": None})
    warm = json.loads(json.dumps(lines[0]))
    warm["metadata"]["benchmark_phase"] = "warmup"
    return [warm, *lines]


def aiperf_sums(found: list[RequestRecord], rate: float) -> dict[str, Any]:
    def block(values: list[float]) -> dict[str, Any]:
        ranks = {f"p{q}": float(np.percentile(values, q)) for q in (1, 5, 10, 25, 50, 75, 90, 95, 99)}
        return {"unit": "ms", "avg": float(np.mean(values)), "min": min(values), "max": max(values), **ranks}

    streams = [times(record, False) for record in found if record.status == "ok"]
    return {
        "schema_version": "1.0",
        "aiperf_version": "0.14.0",
        "request_count": {"unit": "requests", "avg": float(len(streams))},
        "error_request_count": {"unit": "requests", "avg": float(len(found) - len(streams))},
        "time_to_first_token": block([stream[0] * 1000 for stream in streams]),
        "request_latency": block([stream[-1] * 1000 for stream in streams]),
        "inter_token_latency": block([1000 * (s[-1] - s[0]) / max(1, len(s) - 3) for s in streams]),
        "request_throughput": {"unit": "requests/sec", "avg": 3.9},
        "input_config": {"loadgen": {"request_rate": rate}, "endpoint": {"model_names": ["smollm2"]}},
        "start_time": "2026-11-30T04:40:00",
        "was_cancelled": False,
    }


def evalscope(found: list[RequestRecord], folder: Path, rate: float, *, role: bool, database: bool = True) -> Path:
    """benchmark_summary.json with its neighbours."""
    ok = [record for record in found if record.status == "ok"]
    summary = {
        "Test Duration (s)": 100.0,
        "Concurrency": -1,
        "Request Rate (req/s)": rate,
        "Total Requests": len(found),
        "Success Requests": len(ok),
        "Failed Requests": len(found) - len(ok),
        "Req Throughput (req/s)": len(ok) / 100.0,
        "Avg Latency (s)": 0.9,
        "TTFT (ms)": 90.0,
        "TPOT (ms)": 20.0,
        "ITL (ms)": 20.0,
    }
    args = {
        "model": "smollm2",
        "url": "http://x/v1/chat/completions",
        "open_loop": True,
        "rate": rate,
        "dataset": "openqa",
    }
    (folder / "benchmark_summary.json").write_text(json.dumps(summary, indent=4))
    (folder / "benchmark_args.json").write_text(json.dumps(args))
    if database:
        connection = sqlite3.connect(folder / "benchmark_data.db")
        connection.execute(
            "CREATE TABLE result(request TEXT, start_time REAL, inter_token_latencies TEXT, success INTEGER, "
            "response_messages TEXT, completed_time REAL, latency REAL, first_chunk_latency REAL, "
            "prompt_tokens INTEGER, completion_tokens INTEGER, max_gpu_memory_cost REAL, time_per_output_token REAL, "
            "request_id TEXT, is_stream INTEGER)"
        )
        for record in found:
            stream = times(record, role)
            success = record.status == "ok"
            row: list[Any] = ["{}", record.sent_ns / NS, json.dumps(list(np.diff(stream))), int(success), "gASV"]
            row += [record.end_ns / NS + 0.002]
            if success:
                latency = stream[-1] + 0.002  # to the usage event
                tokens = record.output_tokens
                row += [latency, stream[0], record.prompt_tokens, tokens, 0.0, (latency - stream[0]) / (tokens - 1)]
            else:
                row += [None] * 6
            connection.execute(f"INSERT INTO result VALUES ({','.join('?' * 14)})", [*row, None, 1])
        connection.commit()
        connection.close()
    return folder / "benchmark_summary.json"
