"""The benchmark of mixed load, on a runner that computes nothing: what it counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engines.native.runner import ModelRunner
from engines.native.step import StepPlan
from evaluation.benchmarks.mixed_load import Load, Session, rows
from tests.engines.fake_runner import FakeRunner


class Slow(FakeRunner):
    """1 ms a step and 50 µs for a token of prefill, by its own clock."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def launch(self, plan: StepPlan) -> Any:
        self.now += 0.001 + 5e-5 * int(plan.count[plan.count > 1].sum())
        return super().launch(plan)


def test_a_target_keeps_the_gaps_of_streams_and_every_prompt_is_served() -> None:
    load = Load(seconds=1.2, rate=5.0, streams=2, prompt=(100, 150), vocab=50)
    longest = {}
    for target in (0.0, 4.0):
        runner = Slow(200, 16, max_model_len=400, max_num_seqs=16)
        runner.sizes = SimpleNamespace(max_num_seqs=16, max_batched_tokens=256)  # type: ignore[attr-defined]
        seen = Session(cast(ModelRunner, runner), load, target, seed=1, clock=runner.clock).run()
        assert seen.firsts
        assert seen.unserved <= 1
        found = {row.metric: row.value for row in rows(target, [seen], load.seconds)}
        assert found["inter-token latency p50"] <= found["inter-token latency p99"]
        assert found["tokens drawn per second"] > 0
        longest[target] = max(seen.gaps)
    assert longest[0.0] > 5e-3
    assert longest[4.0] < 4.9e-3  # a block more at most


def test_arrivals_are_the_same_for_every_target_and_no_gap_is_told() -> None:
    load = Load(seconds=50.0, rate=1.0, streams=1, prompt=(10, 20), vocab=50)
    assert list(load.arrivals(3)) == list(load.arrivals(3))
    assert 30 < len(list(load.arrivals(3))) < 75
    with pytest.raises(SystemExit, match="give more --seconds"):
        rows(0, [], 1.0)
