"""What the engine says of itself: its Prometheus counters before and after a level, its gauges' peaks in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from prometheus_client.parser import text_string_to_metric_families

from evaluation.client.http import Client, RequestError

EVERY_S = 2.0
# Our name of a figure → the engines' (ours, vLLM's new and old).
COUNTERS = {
    "preemptions": ("tursiops_engine_preemptions_total", "vllm:num_preemptions_total"),
    "prefix_hit_tokens": (
        "tursiops_engine_prefix_hit_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
    ),
    "prefix_query_tokens": (
        "tursiops_engine_prompt_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
    ),
    "generated_tokens": ("tursiops_engine_generated_tokens_total", "vllm:generation_tokens_total"),
    "ttft_s_sum": ("tursiops_engine_request_ttft_seconds_sum", "vllm:time_to_first_token_seconds_sum"),
    "ttft_count": ("tursiops_engine_request_ttft_seconds_count", "vllm:time_to_first_token_seconds_count"),
    "queue_s_sum": ("tursiops_engine_request_queue_seconds_sum", "vllm:request_queue_time_seconds_sum"),
    "queue_count": ("tursiops_engine_request_queue_seconds_count", "vllm:request_queue_time_seconds_count"),
    "drafted_tokens": ("tursiops_engine_drafted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
    "accepted_tokens": ("tursiops_engine_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
}
GAUGES = {
    "running": ("tursiops_engine_requests_running", "vllm:num_requests_running"),
    "waiting": ("tursiops_engine_requests_waiting", "vllm:num_requests_waiting"),
    "kv_used": ("tursiops_engine_kv_blocks_used",),
    "kv_total": ("tursiops_engine_kv_blocks_total",),
    "kv_share": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}


def read(text: str) -> dict[str, float]:
    """Figures under our names; samples of one name are summed over their labels (the shares: the greatest)."""
    samples: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(float(sample.value))
    found: dict[str, float] = {}
    for name, known in (COUNTERS | GAUGES).items():
        values = next((samples[one] for one in known if one in samples), None)
        if values is not None:
            found[name] = max(values) if name == "kv_share" else sum(values)
    if "kv_share" not in found and found.get("kv_total"):
        found["kv_share"] = found["kv_used"] / found["kv_total"]
    return found


def change(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Of the counters; one that fell (the engine was started anew) counts from 0."""
    return {
        name: after[name] - before[name] if after[name] >= before[name] else after[name]
        for name in COUNTERS
        if name in before and name in after
    }


class Scraper:
    """Reads one engine's /metrics. An endpoint without one is no fault: the figures are missing."""

    def __init__(self, client: Client, path: str = "/metrics") -> None:
        self._client = client
        self._path = path
        self.peaks: dict[str, float] = {}

    async def now(self) -> dict[str, float]:
        try:
            text = await self._client.request("GET", self._path, timeout_s=5.0)
            return read(text.decode("utf-8", "replace"))
        except (RequestError, ValueError):  # none there, or no Prometheus text
            return {}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keeps the peaks of the gauges meanwhile."""
        self.peaks = {}
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            for name, value in (await self.now()).items():
                if name in GAUGES:
                    self.peaks[name] = max(value, self.peaks.get(name, value))
            await asyncio.sleep(EVERY_S)

    async def until_idle(self, limit_s: float) -> bool:
        """Waits until nothing runs or waits in the engine. False: it still did after `limit_s`, or tells nothing."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while True:
            figures = await self.now()
            busy = figures.get("running", 0) + figures.get("waiting", 0)
            if "running" not in figures:
                return False
            if busy == 0:
                return True
            if loop.time() >= end:
                return False
            await asyncio.sleep(0.5)
