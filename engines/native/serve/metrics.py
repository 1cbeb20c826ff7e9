"""What the instance counts, for Prometheus. Names and units are a contract (docs/contracts.md §5)."""

from __future__ import annotations

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from engines.native.ipc import Ready, Update
from engines.native.request import Finish, TimeoutLayer
from engines.native.serve.disk_metrics import DiskMetrics
from engines.native.serve.speculation import SpeculationMetrics
from engines.native.serve.step_times import StepTimes
from engines.native.serve.stream import Stream

PREFIX = "tursiops_engine_"
_PLAIN = b"\xff"  # −1 in Update.sources
REFUSALS = ("overloaded", "tenant_queue_full")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TPOT = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class Metrics:
    """Every request is counted once, at its ending, whatever the reason."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        prefix = PREFIX

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(prefix + name, text, registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(prefix + name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(prefix + name, text, registry=self.registry, buckets=buckets)

        self.running = gauge("requests_running", "Requests that hold a row")
        self.waiting = gauge("requests_waiting", "Requests in the queue")
        self.blocks_used = gauge("kv_blocks_used", "KV blocks with an owner")
        self.blocks_total = gauge("kv_blocks_total", "KV blocks of the pool")
        self.hit_tokens = counter("prefix_hit_tokens", "Prompt tokens taken from the prefix cache")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of admitted requests")
        self.generated_tokens = counter("generated_tokens", "Tokens drawn")
        self.preemptions = counter("preemptions", "Running requests sent back to the queue for want of KV blocks")
        self.preemptions_by_kind = counter("preemptions_by_kind", "The same, by what became of the blocks", ("kind",))
        self.host_blocks_used = gauge("host_blocks_used", "Blocks of host memory that hold preempted requests")
        self.tenants_waiting = gauge("tenants_waiting", "Tenants with a request in the queue")
        self.timeouts = counter("timeouts", "Requests that ran into a time-out, by its layer", ("layer",))
        self.refused = counter("requests_refused", "Requests that found no place in the queue", ("reason",))
        self.queue_time = histogram("request_queue_seconds", "Arrival to admission", _SECONDS)
        self.restarts = counter("core_restarts", "Times that the core process was started again")
        self.finished = counter("requests_finished", "Requests that ended", ("reason",))
        self.ttft = histogram("request_ttft_seconds", "Arrival to first token", _SECONDS)
        self.tpot = histogram("request_tpot_seconds", "Mean time between tokens after the first", _TPOT)
        self.e2e = histogram("request_e2e_seconds", "Arrival to ending", _SECONDS)
        self.prompt_length = histogram("request_prompt_tokens", "Prompt tokens of a request", _TOKENS)
        self.output_length = histogram("request_output_tokens", "Tokens drawn for a request", _TOKENS)
        self.steps = StepTimes(prefix + "step_phase_seconds")
        self.registry.register(self.steps)
        for reason in Finish:
            self.finished.labels(reason)
        for kind in ("recompute", "swap"):
            self.preemptions_by_kind.labels(kind)
        for layer in TimeoutLayer:
            self.timeouts.labels(layer)
        for refusal in REFUSALS:
            self.refused.labels(refusal)
        self._preemptions_seen = self._swaps_seen = 0
        self._disk: DiskMetrics | None = None
        self.speculation: SpeculationMetrics | None = None
        """From the first counts of an engine that speculates."""

    def core_ready(self, ready: Ready) -> None:
        self.blocks_total.set(ready.num_blocks - 1)
        if self._disk is not None:
            self._disk.restarted()
        if self.speculation is not None:
            self.speculation.restarted()
        self._preemptions_seen = self._swaps_seen = 0

    def update(self, update: Update) -> None:
        self.running.set(update.running)
        self.waiting.set(update.waiting)
        self.blocks_used.set(update.blocks_used)
        self.host_blocks_used.set(update.host_blocks_used)
        self.tenants_waiting.set(update.tenants_waiting)
        self.generated_tokens.inc(len(update.tokens) // 4)
        if update.preemptions > self._preemptions_seen:
            preempted, swapped = update.preemptions - self._preemptions_seen, update.swaps - self._swaps_seen
            self.preemptions.inc(preempted)
            self.preemptions_by_kind.labels("swap").inc(swapped)
            self.preemptions_by_kind.labels("recompute").inc(preempted - swapped)
            self._preemptions_seen, self._swaps_seen = update.preemptions, update.swaps

        if update.disk is not None:
            self._disk = self._disk or DiskMetrics(self.registry, PREFIX)
            self._disk.update(update.disk)
        if update.speculation is not None:
            self.speculation = self.speculation or SpeculationMetrics(self.registry, PREFIX)
            guessed = len(update.sources) - update.sources.count(_PLAIN)
            self.speculation.update(update.speculation, len(update.tokens) // 4, guessed)

    def core_gone(self) -> None:
        for gauge in (self.running, self.waiting, self.blocks_used, self.host_blocks_used, self.tenants_waiting):
            gauge.set(0)

    def started(self, stream: Stream, cached_tokens: int) -> None:
        self.queue_time.observe(time.monotonic() - stream.created_at)
        self.prompt_tokens.inc(len(stream.prompt_ids))
        self.hit_tokens.inc(cached_tokens)

    def ended(self, stream: Stream, finish: Finish) -> None:
        self.finished.labels(finish).inc()
        if finish is Finish.TIMEOUT and stream.ending is not None:
            self.timeouts.labels(stream.ending.code).inc()
        self.e2e.observe(time.monotonic() - stream.created_at)
        self.prompt_length.observe(len(stream.prompt_ids))
        self.output_length.observe(stream.generated)
        if stream.generated:
            self.ttft.observe(stream.first_at - stream.created_at)
        if stream.generated > 1:
            self.tpot.observe((stream.last_at - stream.first_at) / (stream.generated - 1))

    def text(self) -> bytes:
        if self.speculation is not None:
            self.speculation.refresh()
        return generate_latest(self.registry)
