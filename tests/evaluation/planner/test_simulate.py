"""The simulator against closed forms, and against one that takes every step by itself."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.planner.roofline import Step
from evaluation.planner.simulate import Limits, Work, arrivals, simulate
from evaluation.profile import Guesses


def _work(at, prompt, output, cached=0.0) -> Work:
    count = len(at)
    return Work(np.array(at, float), *(np.full(count, float(each)) for each in (prompt, cached, output)))


def _cost(step: Step) -> float:
    """Linear in contexts, as a device's is, with a fixed part."""
    return 0.004 + 1e-5 * step.chunk + 2e-7 * step.pairs / 100 + 1e-4 * (step.rows + step.guesses) + 1e-7 * step.keys


def test_one_request_alone():
    found = simulate(_work([0.0], 1000, 11), Limits(4, 512), _cost)
    chunks = [(512, 0), (488, 512)]
    first = sum(_cost(Step(0, 0, n, n * (start + n / 2))) for n, start in chunks)
    steps = sum(_cost(Step(1, 1000 + done)) for done in range(10))
    assert found.ttft[0] == pytest.approx(first)
    assert found.e2el[0] == pytest.approx(first + steps)
    assert found.tpot[0] == pytest.approx(steps / 10)
    assert found.busy_s == found.span_s


def test_guesses_make_fewer_and_longer_passes():
    guessed = _work([0.0], 1000, 11)._replace(guesses=Guesses(tokens=2.5, checked=3.0))
    found = simulate(guessed, Limits(4, 512), _cost)
    steps = sum(_cost(Step(1, 1000 + done, guesses=3)) for done in (0, 2.5, 5, 7.5))
    assert found.e2el[0] - found.ttft[0] == pytest.approx(steps)
    assert found.tpot[0] == pytest.approx(steps / 10)


def test_guesses_that_do_not_pay_are_not_tried():
    work = _work([0.0, 0.1, 0.2], 200, 30)
    costly = work._replace(guesses=Guesses(tokens=1.5, checked=60.0))
    plain, tried = (simulate(each, Limits(4, 512), _cost) for each in (work, costly))
    assert tried.tpot == pytest.approx(plain.tpot)


def test_keys_of_guessed_rows_do_not_drift():
    """Answers of many lengths that end between two passes' tokens: what the last one reads is its own."""
    chooser = np.random.default_rng(7)
    work = _work(np.arange(200) * 0.05, 50, 1)._replace(
        output=chooser.integers(2, 40, 200) * 1.0, guesses=Guesses(tokens=1.7, checked=0.8)
    )
    seen: list[Step] = []

    def cost(step: Step) -> float:
        seen.append(step)
        return _cost(step)

    simulate(work, Limits(8, 512), cost)
    assert all(-1e-6 <= step.keys <= step.rows * (50 + 41) + 1e-6 for step in seen)


def test_beside_prompts_nothing_is_guessed():
    """The second prompt comes while the first answers: that step tells it one token."""
    seen: list[Step] = []

    def cost(step: Step) -> float:
        seen.append(step)
        return 0.01

    work = _work([0.0, 0.012], 10, 9)._replace(guesses=Guesses(tokens=2.0, checked=4.0))
    simulate(work, Limits(4, 512), cost)
    assert all(step.guesses == 0 for step in seen if step.chunk)
    assert any(step.rows and step.chunk for step in seen)


@pytest.mark.parametrize("rate", [1, 3, 4])
def test_a_queue_of_prompts_is_m_d_1(rate):
    """D = 0.2 s: 0.225, 0.35 and 0.60 s on average (section 2.5). One-token answers, one at a time."""
    chooser = np.random.default_rng(5)
    count = 30_000
    work = _work(arrivals(chooser, rate, count), 10, 1)
    found = simulate(work, Limits(1, 512), lambda step: 0.2)
    expected = 0.2 + rate * 0.04 / (2 * (1 - rate * 0.2))
    assert found.ttft.mean() == pytest.approx(expected, rel=0.08)
    assert np.isnan(found.tpot).all()


def _naive(work: Work, limits: Limits, seconds) -> tuple[np.ndarray, np.ndarray]:
    """Every step by itself, every row by itself."""
    now, step_end = 0.0, np.full(len(work.at), np.nan)
    first = np.full(len(work.at), np.nan)
    done, made = np.zeros(len(work.at)), np.zeros(len(work.at))
    waiting, running = list(range(len(work.at))), []
    while waiting or running:
        if not running and work.at[waiting[0]] > now:
            now = work.at[waiting[0]]
        while waiting and work.at[waiting[0]] <= now + 1e-12 and len(running) < limits.sequences:
            need = sum(work.prompt[i] + work.output[i] for i in [*running, waiting[0]])
            if need > limits.kv_tokens and running:
                break
            running.append(waiting.pop(0))
        decoding = [i for i in running if made[i]]
        budget = limits.step_tokens - len(decoding)
        chunk = pairs = 0.0
        for i in [i for i in running if not made[i]]:
            left = work.prompt[i] - done[i]
            count = left if left <= budget else (done[i] + budget) // 16 * 16 - done[i]
            if count <= 0:
                break
            pairs += count * (done[i] + count / 2)
            chunk, budget, done[i] = chunk + count, budget - count, done[i] + count
        keys = sum(work.prompt[i] + made[i] - 1 for i in decoding)
        now += seconds(Step(len(decoding), keys, chunk, pairs))
        for i in list(running):
            if made[i] or done[i] >= work.prompt[i]:
                made[i] += 1
                first[i] = now if made[i] == 1 else first[i]
                if made[i] >= work.output[i]:
                    step_end[i] = now
                    running.remove(i)
    return first - work.at, step_end - work.at


@pytest.mark.parametrize("limits", [Limits(64, 512), Limits(4, 256), Limits(64, 512, 3000)])
def test_leaps_end_where_single_steps_do(limits):
    chooser = np.random.default_rng(2)
    count = 120
    work = Work(
        arrivals(chooser, 12, count), chooser.integers(20, 900, count) * 1.0, np.zeros(count),
        chooser.integers(1, 60, count) * 1.0,
    )  # fmt: skip
    found = simulate(work, limits, _cost)
    first, end = _naive(work, limits, _cost)
    assert found.ttft == pytest.approx(first, rel=0.02, abs=0.01)
    assert found.e2el == pytest.approx(end, rel=0.02, abs=0.01)


def test_a_cached_prefix_is_read_but_not_computed():
    plain = simulate(_work([0.0], 1000, 20), Limits(1, 2048), _cost)
    cached = simulate(_work([0.0], 100, 20, cached=900), Limits(1, 2048), _cost)
    assert cached.ttft[0] < 0.5 * plain.ttft[0]
    assert cached.tpot[0] == pytest.approx(plain.tpot[0])


@pytest.mark.parametrize(("depth", "seconds"), [(1, 0.015), (2, 0.025)])
def test_a_step_that_is_planned_ahead_misses_who_came_since(depth, seconds):
    work = Work(np.array([0.0, 0.025]), np.full(2, 10.0), np.zeros(2), np.array([50.0, 1.0]))
    found = simulate(work, Limits(4, 512, depth=depth), lambda step: 0.01)
    assert found.ttft == pytest.approx([0.01, seconds])


def test_little_s_law_holds():
    chooser = np.random.default_rng(3)
    work = _work(arrivals(chooser, 10, 4000), 100, 50)
    found = simulate(work, Limits(256, 2048), _cost)
    assert found.rate == pytest.approx(10, rel=0.05)
    in_flight = found.e2el.sum() / found.span_s
    assert in_flight == pytest.approx(found.rate * found.e2el.mean())
    assert found.mean_rows * found.busy_s == pytest.approx((found.e2el - found.ttft).sum(), rel=0.02)


def test_overload_shows_in_the_queue_not_in_the_rate():
    work = _work(arrivals(np.random.default_rng(4), 200, 2000), 100, 50)
    found = simulate(work, Limits(8, 512), _cost)
    assert found.rate < 100
    assert found.longest_queue > 500
    assert found.quantile("ttft", 0.95) > 5


def test_a_target_keeps_the_steps_of_who_answers_short():
    work = Work(np.array([0.0, *[0.02] * 6]), np.full(7, 2000.0), np.zeros(7), np.array([6.0] + [60.0] * 6))
    free = simulate(work, Limits(16, 8192), _cost)
    paced = simulate(work, Limits(16, 8192, target_tpot_s=0.012), _cost)
    assert free.tpot[0] > 0.024
    assert paced.tpot[0] < 0.0135
    assert paced.span_s > free.span_s  # the same work in more steps


def test_what_can_never_run_is_refused():
    with pytest.raises(ValueError, match="kv_tokens: 100"):
        simulate(_work([0.0], 200, 10), Limits(4, 512, 100), _cost)
    with pytest.raises(ValueError, match="no request"):
        simulate(_work([], 1, 1), Limits(4, 512), _cost)
