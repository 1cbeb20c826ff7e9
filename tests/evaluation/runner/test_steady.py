"""Verdicts on a queue whose truth is known, over many seeds."""

import numpy as np
import pytest

from evaluation.client.law import Law
from evaluation.runner.steady import assess, closed_loop, columns_of, transient_end
from evaluation.schema import Objective, Steady
from tests.evaluation.records import record
from tests.evaluation.runner_levels import S, level, served

LAW = Law(ttft_ms=20, itl_ms=5, slots=4)
TRUE = LAW.capacity(10, 20)
LIMIT = [Objective(metric="e2el", limit_ms=3000, quantile=0.99)]


def verdicts(share, seeds=8, **fields):
    return [level(LAW, share * TRUE, objectives=LIMIT, seed=seed, **fields).verdict for seed in range(seeds)]


def test_below_capacity_is_steady_and_never_overloaded():
    assert verdicts(0.5).count("steady") >= 7
    near = verdicts(0.85, seeds=8)
    assert near.count("overloaded") == 0
    assert near.count("steady") >= 5


@pytest.mark.parametrize("share", [1.1, 4.0])
def test_above_capacity_is_overloaded(share):
    assert verdicts(share).count("overloaded") >= 7


def test_case_19_a_rate_beyond_what_is_served_is_overloaded_though_each_service_is_fast():
    """vllm #54101: 40/s at 4 at once. From the actual service start the latency looks flat; from the intended not."""
    result = level(LAW, 40.0, objectives=LIMIT, requests=400, seed=3)
    assert result.verdict == "overloaded"
    assert result.decision == "fail"
    assert result.done_rate == pytest.approx(TRUE, rel=0.03)
    assert result.metrics["e2el_intended"].p99 > 10 * 115  # ms that a service takes


def test_case_23_all_at_once_is_queueing_not_service_time():
    """vllm #4252: TTFT grows linearly over requests that were all sent at t = 0."""
    alone = Law(ttft_ms=20, itl_ms=5, slots=1)
    records = served(alone, 1e6, 300, seed=1)
    end = records[0].intended_ns + 20 * S
    verdict = assess(columns_of(records), records[0].intended_ns, end, Steady())
    assert verdict.checks["balance"] > 0.3
    assert verdict.verdict != "steady"


def test_case_21_the_transient_of_a_burst_is_cut_off_so_that_both_lengths_agree():
    """evalscope #675: 1024 and 2048 requests at concurrency 1024; the burst at the start is not the server."""

    def mean(count):
        rng = np.random.default_rng(count)
        records, at = [], 0.0
        for index in range(count):
            at += 10 if index >= 200 else 0.01  # ms; the first 200 come as a burst and wait for each other
            wait = 9.9 * max(0, 200 - abs(index - 200)) if index < 400 else 0.0
            records.append(record(at, ttft=20 + wait + rng.exponential(5), index=index))
        columns = columns_of(records)
        begin = transient_end(columns, 0, columns.intended[-1])
        kept = [one for one in records if one.intended_ns >= begin]
        return np.mean([(one.first_ns - one.intended_ns) / 1e6 for one in kept]), len(kept)

    (short, kept), (long, _) = mean(1024), mean(2048)
    assert kept >= 512
    assert short == pytest.approx(long, abs=2)
    assert long == pytest.approx(25, abs=2)


def test_a_level_that_drifts_is_not_steady():
    rng = np.random.default_rng(2)
    records = [
        record(at, ttft=50 + at / 300 + rng.exponential(3), index=i) for i, at in enumerate(np.arange(0, 30_000, 30))
    ]
    verdict = assess(columns_of(records), 0, 30 * S, Steady())
    assert verdict.verdict == "undetermined"
    assert "drift" in verdict.reasons


def test_requests_that_are_never_answered_break_littles_law_or_the_balance():
    records = [record(at, ttft=50, index=i) for i, at in enumerate(np.arange(0, 20_000, 20))]
    hung = [record(at, status="timeout", end_ns=None, index=i) for i, at in enumerate(np.arange(0, 20_000, 200))]
    verdict = assess(columns_of([*records, *hung]), 0, 20 * S, Steady())
    assert verdict.verdict != "steady"


def test_few_arrivals_decide_nothing():
    records = [record(at, index=i) for i, at in enumerate(np.arange(0, 200, 10))]
    assert assess(columns_of(records), 0, S, Steady()).reasons == ["few_arrivals"]


def test_in_a_closed_loop_only_the_parts_count():
    records = [record(at, ttft=90, index=i) for i, at in enumerate(np.arange(0, 20_000, 100))]
    assert closed_loop(columns_of(records), 0, 20 * S, Steady()).verdict == "steady"
    slower = [record(at, ttft=50 + at / 200, index=i) for i, at in enumerate(np.arange(0, 20_000, 100))]
    assert closed_loop(columns_of(slower), 0, 20 * S, Steady()).verdict == "undetermined"
