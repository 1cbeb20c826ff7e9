"""The knapsack against all plans there are."""

from __future__ import annotations

import itertools
import random

import pytest

from plugins.quantization.errors import QuantizationFailed
from plugins.quantization.mixed import WHOLE, Choice, ends_in_16_bits, knapsack


@pytest.mark.parametrize("seed", range(20))
def test_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    choices = {
        f"layers.{index}.o": [Choice(str(number), rng.randrange(1, 40) * 8, rng.random()) for number in range(3)]
        for index in range(6)
    }
    least = sum(min(each.nbytes for each in options) for options in choices.values())
    most = sum(max(each.nbytes for each in options) for options in choices.values())
    for budget in (least, (least + most) // 2 + rng.randrange(8), most, 2 * most):
        plan = knapsack(choices, budget)
        taken = [next(each for each in options if each.option == plan[name]) for name, options in choices.items()]
        assert sum(each.nbytes for each in taken) <= budget
        best = min(
            sum(each.cost for each in plan)
            for plan in itertools.product(*choices.values())
            if sum(each.nbytes for each in plan) <= budget
        )
        assert sum(each.cost for each in taken) == pytest.approx(best)


def test_sizes_with_no_common_step_stay_within_the_budget() -> None:
    rng = random.Random(1)
    choices = {
        f"layers.{index}.o": [Choice(str(number), rng.randrange(10**6, 10**7), rng.random()) for number in range(3)]
        for index in range(30)
    }
    budget = sum(sum(each.nbytes for each in options) // 3 for options in choices.values())
    plan = knapsack(choices, budget)
    taken = [next(each for each in options if each.option == plan[name]) for name, options in choices.items()]
    assert 0.95 * budget < sum(each.nbytes for each in taken) <= budget


def test_a_budget_below_the_smallest_plan_is_refused() -> None:
    choices = {"layers.0.o": [Choice("int4", 100, 1.0), Choice(WHOLE, 400, 0.0)]}
    with pytest.raises(QuantizationFailed, match="budget_bytes: the products need 100 bytes"):
        knapsack(choices, 99)
    assert knapsack(choices, 399) == {"layers.0.o": "int4"}
    assert knapsack(choices, 400) == {"layers.0.o": WHOLE}


def test_the_rule_of_thumb() -> None:
    options = [Choice("int4", 100, 1.0), Choice("int8", 200, 0.1), Choice(WHOLE, 400, 0.0)]
    choices = {f"layers.{index}.{group}": options for index in range(4) for group in ("o", "down")}
    plan = ends_in_16_bits(choices, 4, 4 * 400 + 4 * 200)
    assert plan is not None
    assert [plan[f"layers.{index}.o"] for index in range(4)] == [WHOLE, "int8", "int8", WHOLE]
    smaller = ends_in_16_bits(choices, 4, 4 * 400 + 4 * 200 - 1)
    assert smaller is not None
    assert smaller["layers.1.down"] == "int4"
    assert ends_in_16_bits(choices, 4, 4 * 400) is None
