"""Intervals against closed forms, and against how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evaluation.quality.figures import exponential, mean, paired_shares, rate, ratio_of_sums, share


def test_a_share_has_clopper_and_pearsons_interval() -> None:
    found = share(0, 10)
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(1 - 0.025**0.1)
    assert share(0, 0).value is None


def test_items_that_hang_together_widen_the_interval() -> None:
    scores = [1.0] * 50 + [0.0] * 50
    alone = rate(scores, [""] * 100)
    grouped = rate(scores, [str(at // 25) for at in range(100)])
    assert alone.low == share(50, 100).low
    assert grouped.low is not None
    assert grouped.high is not None
    assert grouped.low < 0.2
    assert grouped.high > 0.8
    sure = rate([1.0] * 10, [str(at) for at in range(10)])
    assert sure.low == share(10, 10).low, "a bootstrap of ten right items would have no width"
    mixed = rate(scores, [*([""] * 98), "a", "a"])
    assert mixed.low is not None
    assert mixed.low > 0.38, "items without a group are not one group"
    assert rate([1.0, 0.5, 0.0], ["", "", ""]).value == 0.5


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_without_a_flip_tangos_interval_has_a_closed_form(n: int) -> None:
    room = 1.959964**2 / (n + 1.959964**2)
    assert paired_shares(0, 0, n) == (pytest.approx(-room, abs=1e-6), pytest.approx(room, abs=1e-6))


def test_tangos_interval_turns_with_the_sides_and_tends_to_walds() -> None:
    low, high = paired_shares(3, 11, 60)
    assert paired_shares(11, 3, 60) == (pytest.approx(-high), pytest.approx(-low))
    low, high = paired_shares(900, 1100, 20_000)
    wald = 1.959964 * math.sqrt(2000 - 200**2 / 20_000) / 20_000
    assert low == pytest.approx(-0.01 - wald, abs=2e-5)
    assert high == pytest.approx(-0.01 + wald, abs=2e-5)


def test_tangos_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    flips = [(int(gained), int(lost)) for gained, lost, _ in rng.multinomial(80, [0.05, 0.10, 0.85], 800)]
    ends = {pair: paired_shares(*pair, 80) for pair in set(flips)}
    held = [low <= -0.05 <= high for low, high in (ends[pair] for pair in flips)]
    assert 0.925 < np.mean(held) < 0.975


def test_sums_over_tokens_are_weighted_by_them() -> None:
    found = ratio_of_sums([10.0, 30.0], [10, 10], ["a", "b"], "nats")
    assert (found.value, found.n) == (2.0, 20)
    assert exponential(found, "perplexity").value == pytest.approx(math.exp(2))
    alone = ratio_of_sums([10.0, 30.0], [10, 10], ["a", "a"], "nats")
    assert (alone.value, alone.low) == (2.0, None), "one document has no interval"
    assert mean([1.0, 2.0, 3.0], "x").value == 2.0
