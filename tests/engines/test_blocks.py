"""The block pool on its own."""

from __future__ import annotations

import numpy as np
import pytest

from engines.native.blocks import BlockPool


def tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def fill(pool: BlockPool, token_ids: np.ndarray, salt: str = "") -> list[int]:
    """Allocate and register all full blocks of a sequence."""
    blocks = pool.allocate(-(-len(token_ids) // pool.block_size))
    prefix: int | str = salt
    for index in range(len(token_ids) // pool.block_size):
        part = token_ids[index * pool.block_size : (index + 1) * pool.block_size]
        prefix = pool.register(blocks[index], pool.key(prefix, part))
    return blocks


def test_freed_blocks_stay_findable_until_they_are_needed_and_tails_go_first() -> None:
    pool = BlockPool(6, 2)
    sequence = tokens(1, 2, 3, 4, 5, 6)
    blocks = fill(pool, sequence)
    pool.release(blocks, fence=0)
    assert pool.available == 5
    assert pool.match(sequence, "")[0] == blocks
    taken = pool.allocate(3)  # two never used, then the tail of the cached sequence
    assert taken[-1] == blocks[-1]
    assert pool.match(sequence, "")[0] == blocks[:2]
    assert pool.check([taken]) == []


def test_least_recently_used_is_evicted_first() -> None:
    pool = BlockPool(4, 2)
    old, new = tokens(1, 2), tokens(3, 4)
    a, b = fill(pool, old), fill(pool, new)
    pool.release(a, 0)
    pool.release(b, 0)
    pool.acquire(a)
    pool.release(a, 0)  # used again
    pool.allocate(2)
    assert pool.match(old, "")[0] == a
    assert pool.match(new, "")[0] == []


def test_equal_block_at_another_place_is_not_a_hit() -> None:
    pool = BlockPool(8, 2)
    fill(pool, tokens(1, 2, 3, 4))
    assert pool.match(tokens(3, 4), "")[0] == []
    assert pool.match(tokens(9, 9, 3, 4), "")[0] == []
    assert pool.match(tokens(1, 2, 3, 4), "other")[0] == []
    assert len(pool.match(tokens(1, 2, 3, 4, 5), "")[0]) == 2


def test_duplicates_share_one_identity_so_that_their_children_are_found() -> None:
    pool = BlockPool(10, 2)
    first = fill(pool, tokens(1, 2))
    second = fill(pool, tokens(1, 2, 3, 4))  # its first block is a duplicate
    assert pool.match(tokens(1, 2, 3, 4), "")[0] == [first[0], second[1]]
    assert pool.check([first, second]) == []


def test_fence_holds_blocks_until_the_step_is_settled() -> None:
    pool = BlockPool(4, 2)
    blocks = pool.allocate(3)
    pool.release(blocks, fence=7)
    assert pool.available == 0
    assert pool.check([]) == []
    with pytest.raises(RuntimeError, match="1 KV blocks asked, 0 free"):
        pool.allocate(1)
    pool.settle(6)
    assert pool.available == 0
    pool.settle(7)
    assert pool.available == 3


def test_check_names_lost_doubled_and_stale_blocks() -> None:
    pool = BlockPool(6, 2)
    blocks = fill(pool, tokens(1, 2, 3))
    assert pool.check([blocks]) == []
    assert any("1 references and 0 owners" in problem for problem in pool.check([]))
    assert any("owners" in problem for problem in pool.check([blocks, blocks]))
    pool.release(blocks, 0)
    assert any("both free and owned" in problem for problem in pool.check([blocks]))
    pool._index.clear()
    assert any("prefix index" in problem for problem in pool.check([]))
    assert pool.heal([]) != []
    assert pool.check([]) == []


def test_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5, 2)
    assert sorted(pool.allocate(4)) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="at least 2 blocks"):
        BlockPool(1, 2)
