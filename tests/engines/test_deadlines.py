"""Time-outs by layer: which one ends a request, and which ones no longer concern it."""

from __future__ import annotations

import numpy as np
import pytest

from engines.native.deadlines import Deadlines
from engines.native.request import Finish, Request, SamplingParams, TimeoutLayer, Timeouts
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected

LONG = {"max_tokens": 50}


def test_each_layer_ends_a_request_under_its_own_name() -> None:
    driver = Driver(blocks=60, rows=2, budget=8)
    total = driver.add([1, 2], timeouts=Timeouts(total=20), **LONG)
    slow = driver.add(list(range(40)), timeouts=Timeouts(queue=5, first_token=10), **LONG)  # five chunks
    queued = driver.add([3, 4], timeouts=Timeouts(queue=5), **LONG)
    driver.step()
    driver.now = 6
    driver.step()
    assert driver.codes == {queued: TimeoutLayer.QUEUE}
    assert driver.messages[queued] == "not begun within 5 s: the engine is overloaded"
    driver.now = 11
    driver.step()
    assert driver.codes[slow] == TimeoutLayer.FIRST_TOKEN
    assert driver.messages[slow] == "no token within 10 s"
    driver.now = 21
    driver.step()
    assert driver.codes[total] == TimeoutLayer.TOTAL
    assert driver.messages[total] == "not finished within 20 s"
    assert set(driver.endings.values()) == {Finish.TIMEOUT}
    driver.run()
    assert driver.tokens[total] == expected([1, 2], SamplingParams(**LONG), 64)[: len(driver.tokens[total])]


def test_layers_that_are_behind_a_request_do_not_end_it() -> None:
    driver = Driver(blocks=60, rows=1)
    first = driver.add([1, 2], timeouts=Timeouts(queue=5, first_token=10, total=1000), max_tokens=30)
    driver.step()
    driver.now = 100
    driver.run()
    assert driver.endings == {first: Finish.LENGTH}


@pytest.mark.parametrize("host_blocks", [0, 40], ids=["recompute", "swap"])
def test_a_preempted_request_was_begun_and_has_given_its_first_token(host_blocks: int) -> None:
    driver = Driver(blocks=40, rows=1, budget=8, host_blocks=host_blocks)
    low = driver.add([1, 2, 3], priority=1, timeouts=Timeouts(queue=5, first_token=5), max_tokens=10)
    driver.step()
    driver.step()
    driver.add([4, 5], max_tokens=3)
    driver.step()
    assert driver.scheduler.preemptions == 1
    driver.now = 50
    driver.run()
    assert driver.endings[low] is Finish.LENGTH


def test_fractions_of_a_second_count() -> None:
    driver = Driver(blocks=60, rows=1)
    ended = driver.add([1, 2], timeouts=Timeouts(total=0.25), **LONG)
    driver.now = 0.24
    driver.step()
    assert not driver.endings
    driver.now = 0.26
    driver.step()
    assert driver.messages[ended] == "not finished within 0.25 s"


def test_entries_of_ended_requests_are_swept() -> None:
    deadlines, living = Deadlines(), {}
    for number in range(10_000):
        request = Request(number, np.zeros(1, np.int32), SamplingParams(), 1, deadline=1e9, queue_deadline=1e9)
        living[number] = request
        deadlines.watch(request, living)
        if number >= 10:
            del living[number - 10]
    assert len(deadlines._heap) < 3000
    assert {number for number, _ in deadlines.due(2e9)} >= set(living)


def test_a_request_overrides_the_engines_defaults_layer_by_layer() -> None:
    defaults = Timeouts(10, 20, 30)
    assert Timeouts().over(defaults) == defaults
    assert Timeouts(total=5).over(defaults) == Timeouts(10, 20, 5)
    assert Timeouts(queue=0, first_token=1).over(defaults) == Timeouts(0, 1, 30)
