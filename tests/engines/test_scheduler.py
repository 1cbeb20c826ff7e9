"""Scheduler scenarios on the fake runner. Names carry the id of the case in cases/engine.md."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engines.native.admission import OutputHistory, peak_tokens
from engines.native.request import Finish, Request, SamplingParams
from engines.native.scheduler import Scheduler, SchedulerConfig
from tests.engines.driver import Driver
from tests.engines.fake_runner import expected


def alone(prompt: list[int], **params: int) -> list[int]:
    return expected(prompt, SamplingParams(**params), 64)  # type: ignore[arg-type]


def test_e3_second_of_two_equal_prefixes_waits_one_step_and_hits() -> None:
    driver = Driver(blocks=40, block_size=4, rows=4, budget=64)
    shared = list(range(16))
    first = driver.add([*shared, 40], max_tokens=3)
    second = driver.add([*shared, 41], max_tokens=3)
    driver.step()
    assert first in driver.tokens
    assert second not in driver.tokens  # held back: its four blocks are being computed in this very step
    driver.run()
    assert driver.cached == {first: 0, second: 16}
    assert driver.tokens[first] == alone([*shared, 40], max_tokens=3)
    assert driver.tokens[second] == alone([*shared, 41], max_tokens=3)


def test_e3_leader_that_is_aborted_does_not_leave_followers_waiting() -> None:
    driver = Driver(blocks=40, block_size=4, rows=4, budget=8)
    shared = list(range(30))
    first = driver.add([*shared, 1], max_tokens=2)
    second = driver.add([*shared, 2], max_tokens=2)
    driver.step()
    driver.scheduler.end(first, Finish.ABORT)
    driver.run()
    assert driver.tokens[second] == alone([*shared, 2], max_tokens=2)


@pytest.mark.parametrize("length", [15, 16, 17])
def test_e4_same_prompt_twice_is_identical_and_full_hit_computes_one_token(length: int) -> None:
    driver = Driver(blocks=40, block_size=4)
    prompt = list(range(length))
    first = driver.add(prompt, max_tokens=4)
    driver.run()
    before = driver.runner.computed_tokens
    second = driver.add(prompt, max_tokens=4)
    driver.run()
    assert driver.tokens[first] == driver.tokens[second] == alone(prompt, max_tokens=4)
    assert driver.cached[second] == min(length // 4 * 4, length - 1)
    assert driver.runner.computed_tokens - before == length - driver.cached[second] + 3


def test_e4_full_hit_copies_the_last_block_and_leaves_the_cached_one_alone() -> None:
    driver = Driver(blocks=40, block_size=4)
    prompt = list(range(8))
    driver.add(prompt, max_tokens=1)
    driver.run()
    cached, _ = driver.scheduler.pool.match(np.array(prompt, np.int32), "")
    content = driver.runner.cache[cached].copy()
    driver.add(prompt, max_tokens=6)
    driver.add(prompt, max_tokens=6)
    driver.run()
    assert (driver.runner.cache[cached] == content).all()


def test_e5_repeats_with_cache_on_and_off_give_the_same_ids() -> None:
    outputs = []
    for cache in (True, False):
        driver = Driver(blocks=40, cache=cache)
        for _ in range(5):
            driver.add(list(range(19)), max_tokens=9)
            driver.run()
        outputs.append(list(driver.tokens.values()))
    assert outputs[0] == outputs[1]


def test_e5_salt_keeps_tenants_apart() -> None:
    driver = Driver(blocks=40)
    prompt = list(range(16))
    ids = []
    for salt in ("a", "b", "a"):
        ids.append(driver.add(prompt, salt=salt, max_tokens=1))
        driver.run()
    assert [driver.cached[i] for i in ids] == [0, 0, 15]


def test_e7_prompt_shorter_than_chunk_with_long_output_accounts_for_all() -> None:
    driver = Driver(blocks=20, block_size=4, rows=2, budget=6)
    for start in range(6):
        driver.add([start, 1, 2], max_tokens=40)
    driver.run()
    pool = driver.scheduler.pool
    assert pool.available == pool.usable
    assert set(driver.endings.values()) == {Finish.LENGTH}


def test_e7_checker_heals_a_broken_pool_and_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(blocks=20)
    running = driver.add([1, 2, 3], max_tokens=20)
    driver.step()
    pool = driver.scheduler.pool
    pool.allocate(3)  # lost: nobody owns them
    assert pool.check([request.blocks for request in driver.scheduler.running])
    assert driver.scheduler.heal()
    assert "KV pool rebuilt" in caplog.text
    driver.run()
    assert driver.tokens[running] == alone([1, 2, 3], max_tokens=20)


def test_e9_rapid_cancel_and_resubmit_of_overlapping_prompts_is_stable() -> None:
    driver = Driver(blocks=14, block_size=4, rows=4, budget=12)
    trunk = list(range(20))
    final = []
    for round_ in range(12):
        ids = [driver.add([*trunk[: 12 + i], round_ % 2], max_tokens=8) for i in range(4)]
        driver.step()
        if round_ % 3:
            driver.step()
        for request_id in ids[:3]:
            driver.scheduler.end(request_id, Finish.ABORT)
        driver.collect()
        final.append((ids[3], [*trunk[:15], round_ % 2]))
    driver.run()
    for request_id, prompt in final:
        assert driver.tokens[request_id] == alone(prompt, max_tokens=8)


def test_f1_f4_preemption_continues_exactly() -> None:
    driver = Driver(blocks=11, block_size=4, rows=4, budget=12)
    prompts = [[10 + i, 2, 3, 4, 5] for i in range(4)]
    # History says outputs are short, so all are let in; then they grow and must be preempted.
    for _ in range(4):
        driver.add([1, 2], max_tokens=1)
    driver.run()
    ids = [driver.add(prompt, max_tokens=24) for prompt in prompts]
    driver.run()
    assert driver.scheduler.preemptions > 0
    for request_id, prompt in zip(ids, prompts, strict=True):
        assert driver.tokens[request_id] == alone(prompt, max_tokens=24)
    assert driver.endings[ids[0]] is Finish.LENGTH


def test_f1_preempted_request_keeps_its_place_before_later_arrivals() -> None:
    driver = Driver(blocks=9, block_size=4, rows=3, budget=12)
    for _ in range(4):
        driver.add([1, 2], max_tokens=1)
    driver.run()
    early = [driver.add([20 + i, 2, 3], max_tokens=20) for i in range(2)]
    for _ in range(12):
        driver.step()
    late = driver.add([1, 2, 3], max_tokens=2)
    driver.run()
    assert driver.scheduler.preemptions > 0
    order = list(driver.endings)
    assert order.index(early[0]) < order.index(late)


def test_f5_abort_between_launch_and_commit_gives_no_token_and_frees_all() -> None:
    driver = Driver(blocks=20)
    aborted = driver.add([1, 2, 3, 4, 5], max_tokens=5)
    other = driver.add([6, 7], max_tokens=2)
    scheduler = driver.scheduler
    step = scheduler.plan(0.0)
    assert step is not None
    for request in step.added:
        driver.runner.add(request.row, request.token_ids.tolist(), request.params, request.prompt_len)
    output = driver.runner.launch(step.plan).wait()
    scheduler.end(aborted, Finish.ABORT)
    assert scheduler.pool.used > 0  # its blocks wait behind the fence of the launched step
    assert scheduler.check() == []
    drawn = scheduler.commit(step, output)
    assert drawn.ids.tolist() == [other]
    driver.tokens[other].extend(drawn.tokens.tolist())
    driver.run()
    assert driver.endings[aborted] is Finish.ABORT
    assert driver.tokens[other] == alone([6, 7], max_tokens=2)


def test_f5_rows_and_blocks_of_a_launched_step_are_not_given_away_before_it_is_settled() -> None:
    driver = Driver(blocks=4, rows=1, budget=8)
    first = driver.add([1, 2, 3, 4, 5], max_tokens=3)
    second = driver.add([6, 7], max_tokens=2)
    scheduler = driver.scheduler
    step = scheduler.plan(0.0)
    assert step is not None
    scheduler.end(first, Finish.ABORT)
    assert scheduler.plan(0.0) is None  # the only row is behind the fence
    for request in step.added:
        driver.runner.add(request.row, request.token_ids.tolist(), request.params, request.prompt_len)
    scheduler.commit(step, driver.runner.launch(step.plan).wait())
    driver.run()
    assert driver.tokens[second] == alone([6, 7], max_tokens=2)


def test_f7_higher_class_takes_the_row_of_a_lower_one_which_finishes_later() -> None:
    driver = Driver(blocks=40, rows=1, budget=8)
    low = driver.add([1, 2, 3], max_tokens=10, priority=1)
    driver.step()
    driver.step()
    high = driver.add([4, 5], max_tokens=3, priority=0)
    driver.run()
    assert list(driver.endings) == [high, low]
    assert driver.tokens[low] == alone([1, 2, 3], max_tokens=10)
    assert driver.tokens[high] == alone([4, 5], max_tokens=3)


def test_mixed_step_decodes_go_first_and_chunks_end_at_block_ends() -> None:
    driver = Driver(blocks=40, block_size=4, rows=2, budget=11)
    driver.add([1, 2], max_tokens=10)
    driver.step()
    driver.add(list(range(30)), max_tokens=1)
    plan = driver.scheduler.plan(0.0)
    assert plan is not None
    assert plan.plan.count.tolist() == [1, 8]  # one decode; ten tokens left hold two whole blocks
    assert plan.plan.sample.tolist() == [True, False]


def test_prefill_goes_on_while_every_row_decodes() -> None:
    with pytest.raises(ValueError, match="max_batched_tokens is 8"):
        Scheduler(SchedulerConfig(max_num_seqs=8, max_batched_tokens=8), num_blocks=9, block_size=4, max_model_len=32)


def test_c5_prompt_that_cannot_fit_ends_with_an_error_and_not_in_silence() -> None:
    driver = Driver(blocks=5, block_size=4)
    too_long = driver.add(list(range(16)), max_tokens=1)
    empty = driver.add([], max_tokens=1)
    assert driver.endings == {too_long: Finish.ERROR, empty: Finish.ERROR}
    assert "1 to 15 fit" in driver.messages[too_long]
    longest = driver.add(list(range(15)), max_tokens=100)
    driver.run()
    assert driver.endings[longest] is Finish.LENGTH
    assert len(driver.tokens[longest]) == 1


def test_time_outs_in_the_queue_and_in_total() -> None:
    driver = Driver(blocks=40, rows=1)

    def request(number: int, queue: float, total: float) -> None:
        token_ids = np.array([number, 2], np.int32)
        params = SamplingParams(max_tokens=50)
        driver.submit(
            Request(id=number, token_ids=token_ids, params=params, prompt_len=2, queue_deadline=queue, deadline=total)
        )

    request(1, queue=5, total=20)
    request(2, queue=5, total=math.inf)
    request(3, queue=math.inf, total=20)
    driver.step()
    driver.now = 6
    driver.step()
    assert driver.endings == {2: Finish.TIMEOUT}
    assert "not begun within 5 s" in driver.messages[2]
    driver.now = 21
    driver.step()
    assert driver.endings == {1: Finish.TIMEOUT, 2: Finish.TIMEOUT, 3: Finish.TIMEOUT}
    driver.run()


def test_failed_pass_ends_only_the_requests_of_that_step() -> None:
    driver = Driver(blocks=40, rows=1)
    failing = driver.add([1, 2], max_tokens=3)
    waiting = driver.add([3, 4], max_tokens=3)
    step = driver.scheduler.plan(0.0)
    assert step is not None
    driver.scheduler.fail(step, "numbers went wrong")
    driver.run()
    assert driver.endings == {failing: Finish.ERROR, waiting: Finish.LENGTH}
    assert driver.messages[failing] == "numbers went wrong"


def test_admission_follows_expected_output_and_not_max_tokens() -> None:
    driver = Driver(blocks=17, block_size=4, rows=4, budget=16)
    for _ in range(8):
        driver.add([1, 2], max_tokens=2)
    driver.run()
    for number in range(4):
        driver.add([10 + number, 3], max_tokens=60)  # reserving 60 each would let only one in
    driver.step()
    assert len(driver.scheduler.running) == 4


def test_peak_is_the_worst_moment_of_the_ends_to_come() -> None:
    # Three requests: (used, remaining). Worst: when the one with 4 left ends, two hold 10 + 4 and 6 + 4.
    assert peak_tokens(np.array([10, 6, 2]), np.array([8, 4, 1])) == 24
    assert peak_tokens(np.array([], np.int64), np.array([], np.int64)) == 0


def test_expected_output_is_conditional_on_what_is_generated() -> None:
    history = OutputHistory()
    for length in (10, 20, 60):
        history.add(length)
    assert history.remaining(np.array([0, 15, 30, 60])).tolist() == [30, 25, 30, 31]
