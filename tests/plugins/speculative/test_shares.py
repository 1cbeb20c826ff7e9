"""Who is caught up first, and how far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.speculative.shares import shares

pytestmark = pytest.mark.speculation


def test_the_row_that_lacks_the_least_comes_first() -> None:
    count, ready = shares(np.array([900, 2, 50, 3], np.int32), 100)
    assert count.tolist() == [45, 2, 50, 3]
    assert ready.tolist() == [1, 2, 3]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 500))
def test_the_budget_is_kept_and_spent(lacking: list[int], budget: int) -> None:
    count, ready = shares(np.array(lacking, np.int32), budget)
    assert count.sum() == min(budget, sum(lacking))
    assert (count[ready] == np.array(lacking)[ready]).all()
    assert len(ready) == sum(own == all_of_it for own, all_of_it in zip(count.tolist(), lacking, strict=True))
    assert sum(0 < own < all_of_it for own, all_of_it in zip(count.tolist(), lacking, strict=True)) <= 1
