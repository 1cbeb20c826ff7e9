import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.speculation.tree import Tree
from plugins.speculative.lookahead.branches import Branches, grow
from plugins.speculative.lookahead.survival import CLASSES, Survival

pytestmark = pytest.mark.speculation

FOLLOWS = st.lists(st.integers(0, 3), min_size=1, max_size=12)
MATCHES = st.lists(
    st.tuples(st.integers(1, 32), st.integers(0, 1), st.integers(0, 500), st.integers(0, 3), FOLLOWS), max_size=8
).map(lambda matches: sorted(matches, reverse=True))


def tree_of(branches: Branches) -> Tree:
    return Tree(
        np.array(branches.tokens, np.int32),
        np.array(branches.parents, np.int32),
        np.array(branches.confidence, np.float32),
        np.zeros(len(branches.tokens), np.int32),
    )


def paths(branches: Branches) -> list[list[int]]:
    """Of each node, the tokens from the first to it."""
    found: list[list[int]] = [[]]
    for token, parent in zip(branches.tokens, branches.parents, strict=True):
        found.append([*found[parent], token])
    return found[1:]


@given(MATCHES, st.integers(1, 31), st.floats(0.1, 8.0), st.booleans())
@settings(max_examples=120, deadline=None)
def test_what_grows_is_a_tree_of_what_followed(matches, limit, odds, trees):
    branches = grow(matches, limit, Survival().rates, [odds] * 4, trees=trees)
    assert len(branches.tokens) <= limit
    assert all(parent <= node for node, parent in enumerate(branches.parents))
    assert all(0 < confidence <= 0.99 for confidence in branches.confidence)
    assert all(0 <= kind < CLASSES for kind in branches.kinds)
    for path in paths(branches):
        assert any(match[4][: len(path)] == path for match in matches)
    for node in range(len(branches.tokens) + 1):
        children = [child for child, parent in enumerate(branches.parents) if parent == node]
        assert len({branches.tokens[child] for child in children}) == len(children)
        assert sum(branches.confidence[child] for child in children) < 0.9901
    tree = tree_of(branches)
    if not trees:
        assert tree.chain
    if len(matches) == 1:
        assert len(tree) or odds < 1


@given(MATCHES, st.integers(1, 31))
@settings(max_examples=60, deadline=None)
def test_the_best_nodes_are_in_it_and_the_likeliest_chain_comes_first(matches, limit):
    rates = Survival().rates
    everything, some = (
        grow(matches, 1000, rates, [1.0] * 4, trees=True),
        grow(matches, limit, rates, [1.0] * 4, trees=True),
    )
    most = sorted(tree_of(everything).survival().tolist(), reverse=True)[:limit]
    assert sorted(tree_of(some).survival().tolist(), reverse=True) == pytest.approx(most, rel=1e-4)
    node = 0
    while True:
        children = [child for child, parent in enumerate(some.parents) if parent == node]
        if not children:
            break
        best = max(children, key=lambda child: some.confidence[child])
        assert some.confidence[node] == some.confidence[best]  # node + 1 follows `node`
        node += 1


def test_matches_that_agree_are_surer_than_one_and_than_those_that_part():
    def first(*follows: int) -> float:
        matches = [(6, 0, 50 - place, 0, [token]) for place, token in enumerate(follows)]
        return grow(matches, 8, Survival().rates, [1.0] * 4, trees=True).confidence[0]

    assert first(7, 7, 7) > first(7) > first(7, 8)
