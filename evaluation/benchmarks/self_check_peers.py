"""Requests told as vLLM's and guidellm's own result files tell them, by their formulas, and read by our importers.

Formulas: reference section 1.2 (vllm/benchmarks/serve.py calculate_metrics; guidellm's GenerativeRequestStats). Written
apart from our definitions on purpose: what agrees here was computed twice.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.report.importers.files import import_file
from evaluation.schema import RequestRecord, Summary

NS = 1e9
PERCENTILES = (50, 90, 95, 99)


def imported(records: list[RequestRecord], folder: Path) -> dict[str, dict[str, Summary]]:
    """By tool and metric: what its file says after conversion."""
    ok = [record for record in records if record.status == "ok"]
    files = {"vLLM": vllm(ok), "guidellm": guidellm(ok)}
    found: dict[str, dict[str, Summary]] = {}
    for tool, body in files.items():
        path = folder / f"{tool}.json"
        path.write_text(json.dumps(body))
        result, _ = import_file(path)
        metrics = result.levels[0].metrics
        found[tool] = {name: metrics[name] for name in ("ttft", "e2el", "tpot", "icl") if name in metrics}
    return found


def vllm(records: list[RequestRecord]) -> dict[str, Any]:
    """`--save-result` without details: sums only. Its ITL are the gaps between events; percentiles are interpolated."""
    ttft, gaps, tpot, e2el = [], [], [], []
    for record in records:
        assert record.sent_ns is not None
        times = [time / NS for time, _ in record.chunks]
        start, tokens = record.sent_ns / NS, record.output_tokens or 0
        latency, first = times[-1] - start, times[0] - start
        ttft.append(first)
        e2el.append(latency)
        gaps += [after - before for before, after in itertools.pairwise(times)]
        if tokens > 1:
            tpot.append((latency - first) / (tokens - 1))
    body: dict[str, Any] = {
        "date": "20261130-000000",
        "backend": "openai",
        "model_id": "law",
        "num_prompts": len(records),
        "request_rate": 20.0,
        "completed": len(records),
        "failed": 0,
        "request_throughput": 20.0,
    }
    for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", gaps), ("e2el", e2el)):
        in_ms = np.array(values) * 1000
        body |= {f"mean_{name}_ms": float(in_ms.mean()), f"median_{name}_ms": float(np.median(in_ms))}
        body |= {f"p{q}_{name}_ms": float(np.percentile(in_ms, q)) for q in PERCENTILES}
    return body


def guidellm(records: list[RequestRecord]) -> dict[str, Any]:
    """A report with its requests' times, wall clock in seconds."""
    requests = []
    for index, record in enumerate(records):
        assert record.sent_ns is not None
        times = [time / NS for time, _ in record.chunks]
        timings = {
            "targeted_start": record.intended_ns / NS,
            "request_start": record.sent_ns / NS,
            "first_token_iteration": times[0],
            "last_token_iteration": times[-1],
            "request_end": (record.end_ns or 0) / NS,
        }
        requests.append(
            {
                "request_id": str(index),
                "info": {"status": "completed", "timings": timings},
                "input_metrics": {"text_tokens": record.prompt_tokens, "total_tokens": record.prompt_tokens},
                "output_metrics": {"text_tokens": record.output_tokens, "total_tokens": record.output_tokens},
            }
        )
    return {
        "metadata": {"version": 1, "guidellm_version": "0.6.0"},
        "args": {"model": "law"},
        "benchmarks": [
            {
                "config": {"strategy": {"type_": "poisson", "rate": 20.0}},
                "requests": {"successful": requests, "errored": [], "incomplete": []},
            }
        ],
    }
