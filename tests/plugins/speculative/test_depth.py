"""How far a draft model goes ahead, by what its tokens cost and how often they hold."""

from __future__ import annotations

import pytest

from plugins.speculative.depth import EXPLORE, MOST, Depth

pytestmark = pytest.mark.speculation


def depth_after(rate: float, cost: float) -> Depth:
    """cost: of a token of the draft model, in passes of the target."""
    depth = Depth()
    for round in range(400):
        depth.passed(1.0)
        depth.drafted(cost)
        depth.judged(1, int(round % 100 < rate * 100))
    return depth


@pytest.mark.parametrize(("rate", "cost", "expected"), [(0.9, 0.02, MOST), (0.9, 0.4, 2), (0.5, 0.6, 0), (0.0, 0.1, 0)])
def test_it_is_where_the_most_tokens_come_in_a_second(rate: float, cost: float, expected: int) -> None:
    depth = depth_after(rate, cost)
    p = depth.rate
    speeds = [sum(p**j for j in range(k + 1)) / (1 + k * cost) for k in range(MOST + 1)]
    assert depth.choose() == speeds.index(max(speeds))
    assert abs(depth.choose() - expected) <= 1


def test_where_guesses_do_not_pay_some_are_made_to_see_whether_they_do_again() -> None:
    depth = depth_after(0.1, 0.6)
    assert sum(depth.choose() for _ in range(4 * EXPLORE)) == 4
    for _ in range(400):
        depth.judged(8, 8)
    assert depth.choose() > 2


def test_it_begins_with_a_few() -> None:
    assert Depth().choose() == 3
    assert Depth(most=2).choose() == 2


def test_of_a_chain_only_what_was_reached_counts() -> None:
    depth = Depth()
    depth.judged(5, 1)  # the second was wrong: of the three behind it nothing is known
    assert depth.rate == pytest.approx(0.5, abs=0.01)
    depth.judged(0, 0)
    assert depth.rate == pytest.approx(0.5, abs=0.01)
