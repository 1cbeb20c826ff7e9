"""Steps in flight: what is launched when, and what becomes of a step that can't be launched."""

from __future__ import annotations

import numpy as np
import pytest

from engines.native.config import EngineConfig
from engines.native.offline import Offline
from engines.native.pipeline import Pipeline
from engines.native.request import Finish, Request, SamplingParams
from engines.native.scheduler import Scheduler, SchedulerConfig
from engines.native.step import StepOutput, StepPlan
from evaluation.benchmarks.random_model import TINY, random_runner
from tests.engines.fake_runner import FakeRunner, expected


class RecordingRunner(FakeRunner):
    """Notes launches and waits in their order; a launch that computes `poison` raises."""

    def __init__(self, depth: int, poison: int = -1) -> None:
        super().__init__(40, 4, depth=depth)
        self.events: list[str] = []
        self.poison = poison

    def launch(self, plan: StepPlan):
        for row, start, count in zip(plan.rows, plan.start, plan.count, strict=True):
            if self.poison in self.tokens[row][start : start + count]:
                raise RuntimeError("this token is poison")
        return _Noted(super().launch(plan), self.steps, self.events)


class _Noted:
    def __init__(self, pending, step: int, events: list[str]) -> None:
        self._pending, self._step, self._events = pending, step, events
        events.append(f"launch {step}")

    def wait(self) -> StepOutput:
        self._events.append(f"wait {self._step}")
        return self._pending.wait()


def parts(runner: FakeRunner) -> tuple[Scheduler, Pipeline]:
    config = SchedulerConfig(max_num_seqs=4, max_batched_tokens=16)
    scheduler = Scheduler(config, num_blocks=40, block_size=4, max_model_len=64)
    return scheduler, Pipeline(runner, scheduler)


def request(number: int, prompt: list[int], max_tokens: int, stops: tuple[int, ...] = ()) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, stop_token_ids=list(stops))
    return Request(id=number, token_ids=np.array(prompt, np.int32), params=params, prompt_len=len(prompt))


@pytest.mark.parametrize(
    ("depth", "order"),
    [
        (1, "launch 1, wait 1, launch 2, wait 2, launch 3, wait 3"),
        (2, "launch 1, launch 2, wait 1, launch 3, wait 2, wait 3"),
    ],
)
def test_a_step_is_launched_before_the_one_before_it_is_waited_for(depth: int, order: str) -> None:
    runner = RecordingRunner(depth)
    scheduler, pipeline = parts(runner)
    scheduler.add(request(1, [5, 6, 7], 3))
    while scheduler.has_work or pipeline.in_flight:
        if (flight := pipeline.turn(0.0)) is not None:
            scheduler.commit(flight.step, flight.pending.wait())
    assert ", ".join(runner.events) == order, "no step may be launched for a request whose last token is drawn"


def test_a_stop_wastes_one_step_at_most() -> None:
    output = expected([5, 6, 7], SamplingParams(max_tokens=20), 64)
    runner = RecordingRunner(2)
    scheduler, pipeline = parts(runner)
    scheduler.add(request(1, [5, 6, 7], 20, stops=(output[2],)))
    drawn: list[int] = []
    while scheduler.has_work or pipeline.in_flight:
        if (flight := pipeline.turn(0.0)) is not None:
            drawn += scheduler.commit(flight.step, flight.pending.wait()).tokens.tolist()
    assert drawn == output[: output.index(output[2]) + 1]
    assert runner.steps == len(drawn) + 1
    assert scheduler.pool.used == 0
    assert scheduler.check() == []


def test_a_step_that_cannot_be_launched_fails_after_those_before_it() -> None:
    runner = RecordingRunner(2, poison=49)
    scheduler, pipeline = parts(runner)
    scheduler.add(request(1, [5, 6, 7], 6))
    assert pipeline.turn(0.0) is None
    scheduler.add(request(2, [49, 6], 6))
    first = pipeline.turn(0.0)
    assert first is not None
    assert len(scheduler.commit(first.step, first.pending.wait()).tokens) == 1
    second = pipeline.turn(0.0)
    assert second is not None
    with pytest.raises(RuntimeError, match="poison"):
        second.pending.wait()
    scheduler.fail(second.step, "it failed")
    while scheduler.has_work or pipeline.in_flight:
        if (flight := pipeline.turn(0.0)) is not None:
            scheduler.commit(flight.step, flight.pending.wait())
    assert {ending.id: ending.finish for ending in scheduler.endings} == {1: Finish.ERROR, 2: Finish.ERROR}
    assert scheduler.check() == []


def test_offline_tells_of_a_prompt_that_fits_nowhere_and_goes_on() -> None:
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=24, max_num_seqs=2,
        max_batched_tokens=32, kv_cache_bytes=1 << 17, block_size=8, threads=1,
    )  # fmt: skip
    engine = Offline(config, random_runner(TINY, config, seed=5))
    params = SamplingParams(temperature=0, max_tokens=2)
    (alone,) = engine.generate([[1] * 24], params)
    assert (alone.finish, alone.token_ids) == (Finish.ERROR, [])
    assert "1 to 23 fit" in alone.message
    beside, good = engine.generate([[1] * 24, [1, 2]], params)
    assert (beside.finish, good.finish) == (Finish.ERROR, Finish.LENGTH)
