"""Trees of heads: a chain, and beside each of its nodes the next best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.speculative.branches import branched

pytestmark = pytest.mark.speculation

TOKENS = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.int32)
CHANCES = np.array([[0.8, 0.1, 0.05], [0.5, 0.4, 0.02], [0.6, 0.3, 0.01]], np.float32)


def test_the_chain_stands_first_and_the_likeliest_others_behind_their_parents() -> None:
    tree = branched(TOKENS, CHANCES, 6, 0.05)
    assert tree.tokens.tolist() == [1, 4, 7, 5, 8, 2]
    assert tree.parents.tolist() == [0, 1, 2, 1, 2, 0]
    np.testing.assert_allclose(tree.survival(), [0.8, 0.4, 0.24, 0.32, 0.12, 0.1], rtol=1e-5)


def test_what_is_unlikely_to_be_reached_is_left_out_but_the_first() -> None:
    assert branched(TOKENS, CHANCES, 9, 0.35).tokens.tolist() == [1, 4]
    assert branched(TOKENS, CHANCES, 9, 0.9).tokens.tolist() == [1]
    assert len(branched(TOKENS, CHANCES, 0, 0.1)) == 0


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 31), st.floats(0, 1), st.integers(0, 2**31))
def test_any_tree_is_in_order_and_within_its_size(depths: int, width: int, most: int, least: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    chances = -np.sort(-generator.dirichlet(np.ones(width + 3), depths)[:, :width], axis=1).astype(np.float32)
    tree = branched(generator.integers(0, 99, (depths, width)).astype(np.int32), chances, most, least)
    assert 1 <= len(tree) <= most
    assert (tree.parents <= np.arange(len(tree))).all()
    survival = tree.survival()
    assert (survival[1:] >= least - 1e-6).all()
    stem = int((tree.parents == np.arange(len(tree))).cumprod().sum())
    assert (np.diff(survival[stem:]) <= 1e-6).all()
