"""Requests that go on from where others ended share their blocks, and copy the last, unfilled one."""

from __future__ import annotations

from typing import Any

import pytest

from engines.native.request import Finish, SamplingParams
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected

SIZE = 4


def alone(prompt: list[int], max_tokens: int = 1) -> list[int]:
    return expected(prompt, SamplingParams(max_tokens=max_tokens), 64)


def fork(driver: Driver, prompt: list[int], **options: Any) -> int:
    return driver.add(prompt, **{"max_tokens": 1, "forks": True} | options)


def ended(driver: Driver, prompt: list[int], **options: Any) -> int:
    number = fork(driver, prompt, **options)
    driver.run()
    return number


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("length", range(1, 13))
def test_each_child_computes_one_token_whatever_is_in_the_last_block(length: int, depth: int) -> None:
    driver = Driver(blocks=40, rows=4, budget=30, depth=depth)
    trunk = list(range(length))
    ended(driver, trunk)
    before = driver.runner.computed_tokens
    children = [fork(driver, [*trunk, 30 + number]) for number in range(4)]
    driver.run()
    assert driver.runner.computed_tokens - before == 4
    for number, child in enumerate(children):
        assert driver.tokens[child] == alone([*trunk, 30 + number])
        assert driver.cached[child] == length


def test_a_search_computes_one_token_for_each_beam_of_each_round() -> None:
    driver = Driver(blocks=60, rows=3, budget=30)
    beams = [[5, 6, 7, 8, 9]]
    ended(driver, beams[0])
    before, rounds = driver.runner.computed_tokens, 30
    for turn in range(rounds):
        beams = [[*beam, (7 * turn + number) % 50] for beam in beams for number in range(3)][:3]
        numbers = [fork(driver, beam) for beam in beams]
        driver.run()
        for number, beam in zip(numbers, beams, strict=True):
            assert driver.tokens[number] == alone(beam)
    assert driver.runner.computed_tokens - before == 3 * rounds


def test_children_share_full_blocks_and_own_one_each() -> None:
    driver = Driver(blocks=40, rows=4, budget=30)
    trunk = list(range(10))  # two full blocks, and two tokens
    ended(driver, trunk)
    children = [fork(driver, [*trunk, 30 + number], max_tokens=2) for number in range(3)]
    driver.step()
    tables = [driver.scheduler.requests[child].blocks for child in children]
    assert len({tuple(table[:2]) for table in tables}) == 1
    assert len({table[2] for table in tables}) == 3
    assert driver.scheduler.pool.used == 2 + 3
    driver.run()
    for number, child in enumerate(children):
        assert driver.tokens[child] == alone([*trunk, 30 + number], 2)


def test_tails_of_earlier_rounds_go_before_what_others_have_cached() -> None:
    driver = Driver(blocks=14, rows=2, budget=30)
    kept = driver.add([40 + number for number in range(8)], max_tokens=1)
    driver.run()
    beam = [1, 2]
    for turn in range(20):
        ended(driver, beam)
        beam = [*beam, turn]
    again = driver.add([40 + number for number in range(8)], max_tokens=1)
    driver.run()
    assert driver.cached[again] == 7, "all but the token that must be computed"
    assert driver.tokens[again] == driver.tokens[kept]


def test_only_forks_look_for_unfilled_blocks_and_only_forks_leave_them() -> None:
    for parent, child, cached in ((True, False, 4), (False, True, 4), (True, True, 6)):
        driver = Driver(blocks=40, rows=4, budget=30)
        ended(driver, list(range(6)), forks=parent)
        number = ended(driver, [*range(6), 30], forks=child)
        assert driver.cached[number] == cached
        assert driver.tokens[number] == alone([*range(6), 30])


def test_other_tokens_other_salts_and_other_lengths_are_no_fork() -> None:
    driver = Driver(blocks=40, rows=4, budget=30)
    ended(driver, list(range(7)), salt="a")
    others = [
        ([*range(6), 40, 30], "a", 4),
        ([*range(7), 30], "b", 0),
        ([*range(6), 30], "a", 4),
        ([*range(8), 30], "a", 4),
    ]
    for prompt, salt, cached in others:
        number = ended(driver, prompt, salt=salt)
        assert (driver.cached[number], driver.tokens[number]) == (cached, alone(prompt))
        driver = Driver(blocks=40, rows=4, budget=30)
        ended(driver, list(range(7)), salt="a")


@pytest.mark.parametrize("host_cache", [False, True])
def test_without_room_for_it_the_tail_is_computed_again(host_cache: bool) -> None:
    driver = Driver(blocks=8, rows=2, budget=30, host_blocks=20, host_cache=host_cache)
    ended(driver, list(range(6)))
    driver.add([40 + number for number in range(10)], max_tokens=17)
    driver.run()
    number = ended(driver, [*range(6), 30])
    assert driver.tokens[number] == alone([*range(6), 30])
    assert driver.cached[number] == (4 if host_cache else 0), "an unfilled block does not go to the host"


def test_without_a_prefix_cache_all_is_computed() -> None:
    driver = Driver(blocks=40, rows=4, budget=30, cache=False)
    ended(driver, list(range(6)))
    number = ended(driver, [*range(6), 30])
    assert (driver.cached[number], driver.tokens[number]) == (0, alone([*range(6), 30]))


def test_a_parent_that_was_aborted_or_failed_leaves_no_tail() -> None:
    driver = Driver(blocks=40, rows=4, budget=30)
    number = fork(driver, list(range(6)), max_tokens=9)
    driver.step()
    driver.scheduler.end(number, Finish.ABORT)
    driver.collect()
    failing = fork(driver, [9, *range(5)])
    step = driver.scheduler.plan(0.0)
    assert step is not None
    driver.scheduler.fail(step, "it went wrong")
    driver.collect()
    assert driver.endings[failing] is Finish.ERROR
    for prompt, cached in (([*range(6), 30], 4), ([9, *range(5), 30], 0)):
        child = ended(driver, prompt)
        assert (driver.cached[child], driver.tokens[child]) == (cached, alone(prompt))
