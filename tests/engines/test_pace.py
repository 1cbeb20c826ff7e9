"""A target for the time between tokens: what steps carry beside decodes, with a runner whose time is reckoned."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.config import ConfigError, EngineConfig
from engines.native.pace import TargetPace, Unpaced, pace_of
from engines.native.request import SamplingParams
from engines.native.step import StepPlan
from engines.native.step_times import Load
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected

BASE, DECODE, PREFILL = 0.010, 0.001, 0.002
BLOCK = 4


class Timed(Driver):
    """Its clock is a device that computes one launched step after the other."""

    def __init__(self, *, noise: float = 0.0, **named: Any) -> None:
        super().__init__(rows=8, budget=60, blocks=200, block_size=BLOCK, cache=False, **named)
        self.steps: list[tuple[int, int, float]] = []  # decodes, tokens of prefill, s
        self._free_at, self._ends, self._chooser, self._noise = 0.0, list[float](), random.Random(1), noise
        launch = self.runner.launch

        def timed(plan: StepPlan) -> Any:
            decodes = int((plan.count == 1).sum())
            prefill = plan.tokens - decodes
            taken = (BASE + DECODE * decodes + PREFILL * prefill) * (1 + self._noise * self._chooser.uniform(-1, 1))
            self._free_at = max(self._free_at, self.now) + taken
            self._ends.append(self._free_at)
            self.steps.append((decodes, prefill, taken))
            return launch(plan)

        self.runner.launch = timed  # type: ignore[method-assign]

    def turn(self) -> bool:
        return self.step(self._wait)

    def _wait(self) -> None:
        self.now = max(self.now, self._ends.pop(0))


def mixed(driver: Timed, streams: int = 4, prompts: int = 12) -> None:
    """Streams that decode, and prompts of 50 tokens that come into them."""
    for number in range(streams):
        driver.add([number, 1, 2], max_tokens=58)
    waiting = prompts
    for turn in range(10_000):
        if turn % 5 == 4 and waiting:
            driver.add([waiting] * 50, max_tokens=2)
            waiting -= 1
        if not driver.turn() and not driver.scheduler.has_work and not driver.pipeline.in_flight:
            return
    raise AssertionError("no end in sight")


def beside(driver: Timed) -> list[float]:
    """Seconds of the steps with decodes and prefill."""
    return [taken for decodes, prefill, taken in driver.steps if decodes and prefill]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_steps_keep_to_the_target_once_it_is_learnt(depth: int, noise: float) -> None:
    free = Timed(depth=depth, noise=noise)
    mixed(free)
    assert max(beside(free)) > 0.08, "without a target a prompt is computed at once"
    driver = Timed(depth=depth, noise=noise, target=0.04)
    mixed(driver)
    taken = beside(driver)[3:]
    assert max(taken) < 0.04 * (1 + noise) + BLOCK * PREFILL
    assert np.median(taken) > 0.025, "and uses what it leaves"
    assert set(driver.endings.values()) == set(free.endings.values())


def test_prefill_goes_on_under_a_target_that_decodes_alone_exceed() -> None:
    driver = Timed(target=0.001)
    mixed(driver)
    assert all(0 < prefill <= BLOCK + 1 for decodes, prefill, _ in driver.steps[4:] if decodes > 2 and prefill)
    assert len(driver.endings) == 16


def test_without_decodes_a_step_takes_the_whole_budget() -> None:
    driver = Timed(target=0.001)
    driver.add([1] * 50, max_tokens=2)
    driver.turn()
    assert driver.steps == [(0, 50, pytest.approx(0.11))]


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=12), depth=st.integers(1, 3), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_a_target_that_is_never_met_changes_no_plan(lengths: list[int], depth: int, seed: int) -> None:
    steps = []
    for target in (0, 1e9):
        driver, chooser = Timed(depth=depth, target=target), random.Random(seed)
        for length in lengths:
            driver.add([length] * length, max_tokens=chooser.randint(1, 8))
            driver.turn()
        while driver.turn() or driver.scheduler.has_work:
            pass
        steps.append((driver.steps, driver.tokens))
    assert steps[0] == steps[1]


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=12), target=st.floats(0.001, 0.2), depth=st.integers(1, 3)
)
@settings(max_examples=20, deadline=None)
def test_whatever_the_target_tokens_are_the_same(lengths: list[int], target: float, depth: int) -> None:
    driver = Timed(depth=depth, target=target, noise=0.3)
    asked = {}
    for length in lengths:
        prompt = [length] * length
        asked[driver.add(prompt, max_tokens=6)] = prompt
        driver.turn()
    while driver.turn() or driver.scheduler.has_work:
        pass
    for number, prompt in asked.items():
        assert driver.tokens[number] == expected(prompt, SamplingParams(max_tokens=6), 64)


def test_a_failed_step_teaches_nothing() -> None:
    now = [0.0]
    pace = TargetPace(0.1, BLOCK, lambda: now[0])
    one = StepPlan(np.array([0], np.int32), np.array([3], np.int32), np.array([1], np.int32), np.array([True]))
    for number in range(3):
        pace.launched(one, 1, now[0])
        now[0] += 0.02
        pace.done(failed=number == 0)
    pace.launched(one, 1, now[0])
    now[0] += 9.0
    pace.done(failed=True)
    pace.launched(one, 1, 0.0)  # planned while the one before ran: its time counts from that one's end
    now[0] += 0.02
    pace.done()
    pace.begin(np.array([3], np.int32), np.array([0], np.int32))
    assert pace.times.seconds(Load(1, 4)) == pytest.approx(0.02, rel=0.01)


def test_the_option_makes_it_and_none_is_the_default() -> None:
    config = EngineConfig(format="gguf", paths={})
    assert pace_of(config, 16) is None
    assert isinstance(Driver().scheduler._pace, Unpaced)
    assert isinstance(pace_of(EngineConfig(format="gguf", paths={}, target_tpot_ms=50), 16), TargetPace)
    with pytest.raises(ConfigError, match="target_tpot_ms is -1"):
        EngineConfig(format="gguf", paths={}, target_tpot_ms=-1)
