"""The search over a programmed queue, whose capacity is computed. Levels are simulated: no waiting."""

import asyncio
import itertools

import pytest

from evaluation.client.law import Law
from evaluation.runner.search import capacity, decisions, findings, next_rate, search
from evaluation.schema import LevelResult, Objective, ObjectiveResult, Search
from tests.evaluation.runner_levels import level

LAW = Law(ttft_ms=20, itl_ms=5, slots=4)  # 115 ms a request, 4 at once: 34.8 requests/s
TRUE = LAW.capacity(10, 20)
WIDE = [Objective(metric="e2el", limit_ms=3000, quantile=0.99)]


def run(load, objectives, law=LAW, requests=1000):
    seeds = itertools.count(100)

    async def measure(rate):
        seed = next(seeds)
        return level(law, rate, objectives=objectives, requests=requests, seed=seed, index=seed - 100)

    return asyncio.run(search(load, measure))


@pytest.mark.parametrize("low", [0.5, 30.0, 200.0])
def test_a_programmed_capacity_is_found_within_five_percent_in_twelve_levels(low):
    load = Search(low=low)
    levels = run(load, WIDE)
    answer = capacity(load, levels)
    assert len(levels) <= 12
    assert answer.decision == "certified"
    assert answer.low == pytest.approx(TRUE, rel=0.05)
    assert answer.high == pytest.approx(TRUE, rel=0.08)
    assert answer.low < answer.high <= answer.low * 1.0501


def test_a_sample_too_small_is_undetermined():
    """P99 needs 299 requests: 200 never certify it (what `--num-prompts 200` of other tools can't say)."""
    load = Search(low=10.0, max_levels=6)
    levels = run(load, WIDE, requests=50)
    certain = [one for one in levels if one.decision == "pass" and one.objectives[0].n < 299]
    assert not certain
    small = level(LAW, 10.0, objectives=WIDE, requests=50)
    assert (small.objectives[0].n < 299, small.decision) == (True, "undetermined")


def test_an_objective_that_no_rate_meets_ends_with_a_finding():
    load = Search(low=8.0)
    levels = run(load, [Objective(metric="e2el", limit_ms=50, quantile=0.95)], requests=300)
    assert len(levels) <= 4
    assert capacity(load, levels).decision == "unreachable"
    assert [one.code for one in findings(load, levels)] == ["slo_unreachable"]


def test_a_ceiling_is_never_passed():
    load = Search(low=5.0, high=20.0)
    levels = run(load, WIDE, requests=400)
    assert max(one.rate for one in levels) == 20.0
    assert (capacity(load, levels).decision, capacity(load, levels).low) == ("open_above", 20.0)


# ---- the choice of rates, on levels by hand --------------------------------------------------------------------------


def said(rate, decision, verdict="steady", lower=0.0, upper=0.005, **fields):
    objective = ObjectiveResult(
        metric="e2el", limit_ms=100, quantile=0.99, start="intended", k=0, n=1000, lower=lower, upper=upper
    )
    return LevelResult(index=0, rate=rate, verdict=verdict, decision=decision, objectives=[objective], **fields)


def test_an_invalid_level_is_repeated_and_not_for_ever():
    load = Search(low=2.0)
    levels = [said(2.0, "undetermined", "invalid")]
    assert next_rate(load, levels) == 2.0
    assert next_rate(load, levels * 5) is None


def test_a_rate_that_the_client_cannot_offer_is_a_ceiling_below_which_the_search_goes_on():
    load = Search(low=50.0)
    levels = [said(50.0, "pass"), said(100.0, "pass"), *[said(400.0, "undetermined", "invalid")] * 2]
    assert next_rate(load, levels) == pytest.approx(200)
    levels.append(said(200.0, "fail", "overloaded", done_rate=150.0))
    assert 100 < next_rate(load, levels) < 200
    assert "client_ceiling" in [one.code for one in findings(load, levels)]
    only = [said(50.0, "undetermined", "invalid")] * 2
    assert next_rate(load, only) == pytest.approx(25)
    near = [said(390.0, "pass"), *[said(400.0, "undetermined", "invalid")] * 2]
    assert next_rate(load, near) is None
    assert capacity(load, near).decision == "open_above"


def test_a_contradiction_is_measured_again_at_both_ends():
    load = Search(low=8.0)
    levels = [said(8.0, "fail"), said(4.0, "pass"), said(5.6, "fail"), said(16.0, "pass")]
    asked = []
    for _ in range(2):
        rate = next_rate(load, levels)
        asked.append(rate)
        levels.append(said(rate, "fail" if rate < 10 else "pass"))
    assert set(asked) == {5.6, 16.0}
    assert "non_monotone" in [one.code for one in findings(load, levels)]
    assert capacity(load, levels).low == 4.0


def test_a_rate_that_misses_surely_more_than_a_greater_one_is_repeated():
    load = Search(low=1.0)
    levels = [said(1.0, "pass", lower=0.008, upper=0.0099), said(2.0, "pass", lower=0.0, upper=0.003)]
    assert next_rate(load, levels) in (1.0, 2.0)


def test_two_measurements_that_disagree_leave_a_rate_undetermined():
    assert decisions([said(3.0, "pass"), said(3.0, "fail")]) == {3.0: "undetermined"}
    assert decisions([said(3.0, "undetermined"), said(3.0, "fail")]) == {3.0: "fail"}


def test_an_undetermined_level_is_no_end_of_the_interval():
    load = Search(low=1.0)
    levels = [said(10.0, "pass"), said(20.0, "fail"), said(14.0, "undetermined")]
    rate = next_rate(load, levels)
    assert 10 < rate < 14 or 14 < rate < 20
    assert (capacity(load, levels).low, capacity(load, levels).high) == (10.0, 20.0)


def test_the_next_rate_depends_on_the_levels_alone_so_a_run_resumes_where_it_stood():
    load = Search(low=1.0)
    levels = run(load, WIDE, requests=400)
    for count in range(len(levels)):
        assert next_rate(load, levels[:count]) == levels[count].rate


def test_the_search_ends_after_its_levels():
    load = Search(low=1.0, max_levels=3)
    assert next_rate(load, [said(1.0, "pass"), said(2.0, "pass"), said(8.0, "pass")]) is None
