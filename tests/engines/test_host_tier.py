"""Preemption by swapping, on the fake runner. Names carry the id of the case in cases/engine.md."""

from __future__ import annotations

import numpy as np
import pytest

from engines.native.host_tier import HostTier
from engines.native.request import Finish, SamplingParams
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected


def alone(prompt: list[int], **params: int) -> list[int]:
    return expected(prompt, SamplingParams(**params), 64)  # type: ignore[arg-type]


def pressed(**options: object) -> tuple[Driver, dict[int, list[int]]]:
    """A driver whose pool is too small for the four requests that it has let in."""
    driver = Driver(blocks=11, block_size=4, rows=4, budget=12, **options)  # type: ignore[arg-type]
    for _ in range(4):
        driver.add([1, 2], max_tokens=1)  # history says that outputs are short
    driver.run()
    prompts = {driver.add([10 + i, 2, 3, 4, 5], max_tokens=24): [10 + i, 2, 3, 4, 5] for i in range(4)}
    return driver, prompts


@pytest.mark.parametrize("cache", [True, False], ids=["prefix cache", "no prefix cache"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_f1_f4_swapped_requests_continue_exactly_and_compute_nothing_twice(cache: bool, depth: int) -> None:
    driver, prompts = pressed(host_blocks=40, cache=cache, depth=depth)
    before = driver.runner.computed_tokens
    driver.run()
    assert driver.scheduler.preemptions == driver.scheduler.host.swaps > 0
    assert driver.runner.swapped_in > 0
    for number, prompt in prompts.items():
        assert driver.tokens[number] == alone(prompt, max_tokens=24)
    needed = sum(len(prompt) + 24 - 1 for prompt in prompts.values())
    assert driver.runner.computed_tokens - before == needed


def test_where_the_host_is_full_the_rest_is_computed_again() -> None:
    driver, prompts = pressed(host_blocks=4)
    driver.run()
    assert 0 < driver.scheduler.host.swaps < driver.scheduler.preemptions
    for number, prompt in prompts.items():
        assert driver.tokens[number] == alone(prompt, max_tokens=24)


def test_victims_below_the_crossover_are_computed_again() -> None:
    driver, _ = pressed(host_blocks=40, swap_min=1000)
    driver.run()
    assert driver.scheduler.preemptions > 0
    assert driver.scheduler.host.swaps == driver.runner.swapped_out == 0


def test_i6_a_request_that_is_aborted_while_it_is_swapped_out_frees_its_host_blocks() -> None:
    driver, prompts = pressed(host_blocks=40)
    while not driver.scheduler.host.used:
        driver.step()
    (gone,) = [number for number in prompts if driver.scheduler.requests[number].host_blocks]
    driver.scheduler.end(gone, Finish.ABORT)
    driver.collect()
    assert driver.scheduler.host.used == 0
    driver.run()
    assert driver.endings[gone] is Finish.ABORT


def test_f5_a_swap_that_was_planned_for_an_aborted_request_is_not_carried_out() -> None:
    tier = HostTier(8, 4, 1)
    driver = Driver(blocks=20)
    number = driver.add([1, 2, 3, 4, 5], max_tokens=5)
    driver.step()
    request = driver.scheduler.requests[number]
    assert tier.keep(request, 5)
    tier.release(request, 0)
    assert tier.departures(driver.scheduler.pool, 1) == ([], [])
    assert tier.used == 0
    assert tier.check() == []


def test_swapped_blocks_are_taken_from_the_cache_where_they_still_lie_there() -> None:
    driver = Driver(blocks=40, rows=1, budget=20, host_blocks=20)
    low = driver.add(list(range(16)), priority=1, max_tokens=10)
    for _ in range(4):
        driver.step()
    driver.add([40, 41], max_tokens=2)  # takes the row, not the memory
    driver.run()
    assert (driver.runner.swapped_out, driver.runner.swapped_in) == (5, 1)  # the last block was never full
    assert driver.tokens[low] == alone(list(range(16)), max_tokens=10)


def test_e4_full_hit_of_a_swapped_request_copies_the_last_block_of_the_cache() -> None:
    driver = Driver(blocks=60, rows=2, budget=20, host_blocks=20)
    output = alone([1, 2, 3], max_tokens=10)
    low = driver.add([1, 2, 3], priority=1, max_tokens=10)
    while len(driver.tokens[low]) < 5:  # 8 tokens known, 7 of them computed
        driver.step()
    urgent = [driver.add([40 + i], max_tokens=6) for i in range(2)]
    driver.step()
    assert driver.scheduler.requests[low].host_tokens == 7
    driver.add([1, 2, 3, *output[:5]], max_tokens=1)  # fills the block that the other left at seven tokens
    driver.run()
    assert driver.tokens[low] == output
    assert set(urgent) <= set(driver.endings)


def test_a_step_that_fails_takes_what_it_swapped_with_it_and_the_victim_is_computed_again() -> None:
    driver = Driver(blocks=40, rows=1, budget=20, host_blocks=20)
    low = driver.add([1, 2, 3, 4, 5], priority=1, max_tokens=10)
    driver.step()
    driver.step()
    failing = driver.add([6, 7], max_tokens=2)
    step = driver.scheduler.plan(0.0)
    assert step is not None
    assert step.swap_out
    driver.scheduler.fail(step, "the copy went wrong")
    assert driver.scheduler.host.used == 0
    driver.run()
    assert driver.endings == {failing: Finish.ERROR, low: Finish.LENGTH}
    assert driver.runner.swapped_in == 0
    assert driver.tokens[low] == alone([1, 2, 3, 4, 5], max_tokens=10)


def test_f9_under_lasting_pressure_work_goes_on_and_no_cascade_eats_it() -> None:
    driver, _ = pressed(host_blocks=40)
    for number in range(12):
        driver.add([number, 30, 31], max_tokens=20)
    driver.run(1000)
    assert driver.scheduler.preemptions < 60
    assert set(driver.endings.values()) == {Finish.LENGTH}


def test_e7_check_names_host_blocks_that_nobody_owns_and_heals() -> None:
    driver, prompts = pressed(host_blocks=40)
    while not driver.scheduler.host.used:
        driver.step()
    (number,) = [number for number in prompts if driver.scheduler.requests[number].host_blocks]
    driver.scheduler.requests[number].host_blocks.pop()
    assert any("host memory: " in problem for problem in driver.scheduler.check())
    driver.scheduler.requests[number].host_tokens -= 4
    assert driver.scheduler.heal()
    assert driver.scheduler.check() == []


# The prefix cache's lower tier


def caching(**options: int) -> Driver:
    return Driver(
        **{"blocks": 12, "block_size": 4, "rows": 2, "budget": 30, "host_blocks": 40} | options, host_cache=True
    )


def test_e4_evicted_prefixes_come_back_from_the_host_and_compute_only_what_is_new() -> None:
    driver = caching()
    prompts = [[number, *range(19)] for number in range(6)]  # five blocks each, eleven on the device
    for prompt in prompts:
        driver.add(prompt, max_tokens=2)
        driver.run()
    assert driver.runner.swapped_out > 0
    before = driver.runner.computed_tokens
    again = [driver.add(prompt, max_tokens=2) for prompt in prompts]
    driver.run()
    for number, prompt in zip(again, prompts, strict=True):
        assert driver.tokens[number] == alone(prompt, max_tokens=2)
        assert driver.cached[number] >= 16
    assert driver.runner.computed_tokens - before == sum(21 - driver.cached[number] for number in again)
    assert driver.runner.swapped_in > 0


def test_e5_a_tenants_blocks_on_the_host_are_not_anothers_and_other_tokens_are_no_hit() -> None:
    driver = caching()
    prompt = list(range(20))
    driver.add(prompt, salt="a", max_tokens=1)
    driver.run()
    for number in range(4):
        driver.add([40, number, *range(18)], max_tokens=1)
        driver.run()
    assert driver.scheduler.pool.match(np.array(prompt, np.int32), "a")[0] == []
    ids = []
    for salt in ("b", "a"):
        ids.append(driver.add(prompt, salt=salt, max_tokens=1))
        driver.run()
    assert [driver.cached[number] for number in ids] == [0, 16]
    other = driver.add([0, 1, 2, 3, 4, 5, 6, 49, *range(8, 20)], salt="a", max_tokens=1)
    driver.run()
    assert driver.cached[other] == 4


def test_the_least_recently_used_is_overwritten_where_the_host_is_full() -> None:
    driver = caching(host_blocks=6)
    prompts = [[number, *range(19)] for number in range(5)]
    for prompt in prompts:
        driver.add(prompt, max_tokens=1)
        driver.run()
    oldest = driver.add(prompts[0], max_tokens=1)
    driver.run()
    assert driver.cached[oldest] < 16
    assert driver.tokens[oldest] == alone(prompts[0], max_tokens=1)


def test_what_a_failed_step_spilled_is_found_by_nobody() -> None:
    driver = caching()
    prompt = list(range(20))
    driver.add(prompt, max_tokens=1)
    driver.run()
    driver.add([40, *range(36)], max_tokens=1)
    step = driver.scheduler.plan(0.0)
    while step is not None and not step.swap_out:
        driver.scheduler.fail(step, "it failed")
        step = driver.scheduler.plan(0.0)
    assert step is not None
    driver.scheduler.fail(step, "it failed")
    driver.collect()
    again = driver.add(prompt, max_tokens=1)
    driver.run()
    assert driver.runner.swapped_in == 0
    assert driver.tokens[again] == alone(prompt, max_tokens=1)


def test_victims_and_cached_blocks_share_the_host() -> None:
    driver, prompts = pressed(host_blocks=12, host_cache=True)
    for number in range(4):
        driver.add([49 - number, *range(12)], max_tokens=10)
    driver.run()
    assert driver.scheduler.host.swaps > 0
    for number, prompt in prompts.items():
        assert driver.tokens[number] == alone(prompt, max_tokens=24)
