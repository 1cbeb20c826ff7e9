"""Cases of cases/engine.md (docs/cases.md) on the scheduler and the fake runner, whose cache shows what was read."""

from __future__ import annotations

from functools import partial

import pytest

from engines.native.grammar.spec import Grammar
from engines.native.request import Finish, SamplingParams
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected

DEPTHS = pytest.mark.parametrize("depth", [1, 2])  # three: test_scheduler_properties.py


def alone(prompt: list[int], max_tokens: int) -> list[int]:
    return expected(prompt, SamplingParams(max_tokens=max_tokens), 64)


def looks_short(driver: Driver, number: int = 4) -> None:
    """History says that outputs are short, so that more are let in than can grow."""
    for _ in range(number):
        driver.add([1, 2], max_tokens=1)
    driver.run()


@DEPTHS
@pytest.mark.parametrize("budget", [8, 11, 40])
def test_d4_a_prompt_longer_than_a_step_is_cut_by_itself(depth: int, budget: int) -> None:
    driver = Driver(blocks=40, block_size=4, budget=budget, depth=depth)
    prompts = [list(range(45)), [*range(20), 7, 7], list(range(63))]
    numbers = [driver.add(prompt, max_tokens=6) for prompt in prompts]
    driver.run()
    assert [driver.tokens[number] for number in numbers] == [alone(prompt, 6) for prompt in prompts]
    assert driver.runner.steps > 63 // budget


@DEPTHS
def test_e3_followers_of_four_shared_blocks_read_none_that_is_not_written(depth: int) -> None:
    driver = Driver(blocks=40, block_size=4, budget=64, depth=depth)
    shared = list(range(16))
    numbers = [driver.add([*shared, 40 + each], max_tokens=3) for each in range(4)]
    driver.run()
    for each, number in enumerate(numbers):
        assert driver.tokens[number] == alone([*shared, 40 + each], 3)
    assert [driver.cached[number] for number in numbers] == [0, 16, 16, 16]


@DEPTHS
@pytest.mark.parametrize("cache", [True, False])
def test_e7_after_any_load_free_and_cached_blocks_are_all(depth: int, cache: bool) -> None:
    driver = Driver(blocks=30, block_size=4, budget=8, depth=depth, cache=cache, host_blocks=6)
    for number in range(10):
        driver.add([number % 3, 1, 2], max_tokens=50)
        driver.step()
        if number % 4 == 3:
            driver.scheduler.end(driver.ids - 1, Finish.ABORT)
            driver.collect()
    driver.run()
    pool = driver.scheduler.pool
    assert (pool.available, pool.used) == (pool.usable, 0)


@DEPTHS
def test_f5_f10_an_abort_after_the_last_chunk_was_launched_gives_no_token_and_hurts_nobody(depth: int) -> None:
    """Driver.step fails for a token after an ending; the checks after each step find what was not freed."""
    for moment in range(8):
        driver = Driver(blocks=40, block_size=4, rows=4, budget=10, depth=depth)
        other = driver.add([5, 6, 7], max_tokens=12)
        leaving = driver.add(list(range(20, 38)), max_tokens=12)
        for _ in range(moment):
            driver.step()
        abort = partial(driver.scheduler.end, leaving, Finish.ABORT)
        while leaving not in driver.endings:  # at the first step that is waited for
            driver.step(abort)
        driver.run()
        assert driver.tokens[other] == alone([5, 6, 7], 12)
        assert driver.endings == {leaving: Finish.ABORT, other: Finish.LENGTH}
        got = driver.tokens.get(leaving, [])
        assert got == alone(list(range(20, 38)), 12)[: len(got)]


def first_token_after(priority: int, depth: int, host_blocks: int) -> tuple[int, Driver, int, list[int]]:
    """(steps until the late request's first token, driver, its number, the numbers of those that fill the cache)."""
    driver = Driver(blocks=14, block_size=4, rows=6, budget=16, depth=depth, host_blocks=host_blocks)
    looks_short(driver)
    low = [driver.add([number, 2, 3], max_tokens=40, priority=1) for number in range(4)]
    while driver.scheduler.pool.available > 1:
        driver.step()
    late = driver.add([9] * 20, max_tokens=3, priority=priority)
    for steps in range(1000):
        if late in driver.tokens:
            return steps, driver, late, low
        driver.step()
    raise AssertionError("it never got a token")


@DEPTHS
@pytest.mark.parametrize("host_blocks", [0, 40], ids=["computed again", "swapped"])
def test_f7_a_higher_class_that_finds_the_cache_full_is_served_first_and_its_victims_go_on(
    depth: int, host_blocks: int
) -> None:
    soon, driver, late, low = first_token_after(0, depth, host_blocks)
    waits, *_ = first_token_after(1, depth, host_blocks)
    assert soon <= 2 * depth + 1  # what is in flight ends, then two chunks, then what is in flight again
    assert waits > 5 * soon
    driver.run()
    assert driver.scheduler.preemptions > 0
    assert driver.tokens[late] == alone([9] * 20, 3)
    for number, prompt in zip(low, ([n, 2, 3] for n in range(4)), strict=True):
        assert driver.tokens[number] == alone(prompt, 40)


@DEPTHS
@pytest.mark.parametrize("host_blocks", [0, 60], ids=["computed again", "swapped"])
def test_f9_frees_that_are_deferred_do_not_stop_the_work(depth: int, host_blocks: int) -> None:
    """Rows that lost their blocks wait for the steps in flight; work done twice stays a part of the work."""
    driver = Driver(blocks=12, block_size=4, rows=6, budget=12, depth=depth, host_blocks=host_blocks)
    looks_short(driver, 6)
    before = driver.runner.computed_tokens
    numbers = [driver.add([number, 30, 31], max_tokens=30) for number in range(12)]
    idle = longest = 0
    while driver.scheduler.has_work:
        drawn = sum(map(len, driver.tokens.values()))
        driver.step()
        idle = 0 if sum(map(len, driver.tokens.values())) > drawn else idle + 1
        longest = max(longest, idle)
    driver.run()
    assert driver.scheduler.preemptions > 0
    assert longest <= 12, "steps in a row in which nobody got a token"
    assert driver.runner.computed_tokens - before < 3 * 12 * 33
    assert all(driver.tokens[number] == alone([each, 30, 31], 30) for each, number in enumerate(numbers))


@DEPTHS
@pytest.mark.parametrize("host_blocks", [0, 60], ids=["computed again", "swapped"])
def test_g6_masks_keep_step_through_preemptions(depth: int, host_blocks: int) -> None:
    """FakeRunner compares each mask with the tokens that its row has; drafts join when there is speculation."""
    driver = Driver(blocks=12, block_size=4, rows=4, budget=12, depth=depth, host_blocks=host_blocks)
    looks_short(driver)
    grammar = Grammar("anything")
    numbers = [
        driver.add([10 + each, 2, 3, 4, 5], max_tokens=25, grammar=grammar if each % 2 else None) for each in range(4)
    ]
    driver.run()
    assert driver.scheduler.preemptions > 0
    for each, number in enumerate(numbers):
        assert driver.tokens[number] == alone([10 + each, 2, 3, 4, 5], 25)
