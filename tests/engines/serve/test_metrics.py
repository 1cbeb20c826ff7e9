"""What operators read: the facts of scheduling, under labels that no client can add to."""

from __future__ import annotations

import asyncio

import numpy as np

from engines.native.ipc import Ending, Update
from engines.native.request import Finish, SamplingParams, TimeoutLayer
from engines.native.serve.metrics import Metrics
from engines.native.serve.stream import Stream


def update(**facts: int) -> Update:
    counts = {"running": 0, "waiting": 0, "blocks_used": 0, "preemptions": 0} | facts
    return Update(b"", np.zeros(0, np.int32).tobytes(), b"", {}, [], [], [], **counts)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tursiops_engine_{name}", labels)


def test_preemptions_by_kind_add_up_and_start_anew_with_a_core() -> None:
    metrics = Metrics()
    metrics.update(update(preemptions=5, swaps=2, host_blocks_used=7, tenants_waiting=3))
    assert value(metrics, "preemptions_total") == 5
    assert value(metrics, "preemptions_by_kind_total", kind="swap") == 2
    assert value(metrics, "preemptions_by_kind_total", kind="recompute") == 3
    assert (value(metrics, "host_blocks_used"), value(metrics, "tenants_waiting")) == (7, 3)
    metrics.update(update(preemptions=6, swaps=3))
    assert value(metrics, "preemptions_by_kind_total", kind="swap") == 3
    metrics.core_gone()
    assert (value(metrics, "host_blocks_used"), value(metrics, "tenants_waiting")) == (0, 0)


def test_time_outs_are_counted_by_layer_and_each_layer_is_there_from_the_start() -> None:
    metrics = Metrics()
    assert {value(metrics, "timeouts_total", layer=layer) for layer in TimeoutLayer} == {0}
    stream = Stream(1, [1, 2], SamplingParams(), asyncio.Event())
    metrics.started(stream, 0)
    stream.end(Ending(1, Finish.TIMEOUT, "late", TimeoutLayer.FIRST_TOKEN))
    metrics.ended(stream, Finish.TIMEOUT)
    assert value(metrics, "timeouts_total", layer="first_token_timeout") == 1
    assert value(metrics, "timeouts_total", layer="total_timeout") == 0
    assert value(metrics, "request_queue_seconds_count") == 1
