"""The block trie against counting by hand, and by a slower rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.workload.dedupe import BlockTrie, DuplicatePrompts, refuse_duplicates, reuse


def test_hits_are_whole_blocks_and_never_the_last_token():
    trie = BlockTrie(4)
    assert trie.add(range(10)) == 0
    assert trie.add(range(10)) == 8
    assert trie.add(range(8)) == 4  # its last token is computed, and so its block
    assert trie.add([0, 1, 2, 3, 9, 9, 9, 9, 8, 8]) == 4
    assert trie.add([4, 5, 6, 7, 8]) == 0  # the same block after another prefix is another


def naive(prompts, size):
    seen, hits = set(), 0
    for prompt in prompts:
        blocks = [tuple(prompt[: end + size]) for end in range(0, len(prompt) - size + 1, size)]
        for number, block in enumerate(blocks):
            if block not in seen or number >= (len(prompt) - 1) // size:
                break
            hits += size
        seen.update(blocks)
    return hits


PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=20)


@given(PROMPTS, st.integers(1, 4))
def test_as_a_slower_rule_counts(prompts, size):
    found = reuse(prompts, size, cache_tokens=10_000)
    assert found.hit_tokens == naive(prompts, size)
    assert found.hit_rate == found.hit_rate_limited == found.hit_tokens / sum(map(len, prompts))


@given(PROMPTS, st.integers(1, 4), st.integers(0, 6))
def test_a_limit_holds_and_never_finds_more(prompts, size, capacity):
    limited, whole = BlockTrie(size, capacity), BlockTrie(size)
    for prompt in prompts:
        assert limited.add(prompt) <= whole.add(prompt)
        assert len(limited) <= capacity


def test_what_was_used_longest_ago_goes_leaves_first():
    trie = BlockTrie(2, 3)
    trie.add([1, 1, 2, 2, 0])
    trie.add([3, 3, 0])
    assert trie.add([1, 1, 2, 2, 0]) == 4
    trie.add([4, 4, 0])  # 3 goes
    assert trie.add([3, 3, 0]) == 0  # and with it 2, the leaf, goes before 1
    assert trie.add([1, 1, 2, 2, 0]) == 2


def test_equal_prompts_refuse_the_set():
    """vllm #10753: all prompts alike, 152 against 96 requests a second."""
    found = reuse([[1, 2, 3], [4], [1, 2, 3], [4], [1, 2]], 16)
    assert (found.duplicates, found.duplicate_count) == ([(0, 2), (1, 3)], 2)
    with pytest.raises(DuplicatePrompts, match=r"2 of 5 prompts repeat one before \(prompt 2 is prompt 0\)"):
        refuse_duplicates(found)
    refuse_duplicates(reuse([[1], [2]], 16))
    assert reuse([], 16).hit_rate is None
