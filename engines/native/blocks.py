"""The block pool: who owns which KV block. One free list, which is also the LRU prefix cache.

A block is in exactly one place: the free list (no references, perhaps with cached content), the fence (given back,
but a launched step may still touch it) or the tables of its owners (as many references as owners).

Cached content is found by (identity of the prefix before the block, the block's tokens), an exact key: dict lookup
compares the tokens, so a hash collision cannot hand out another prompt's block. A prefix's identity is an integer
that is never reused; the identity before the first block is the tenant's salt.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

Prefix = int | str
Key = tuple[Prefix, bytes]

NULL_BLOCK = 0
"""Padded tokens are written there; it is never handed out."""


class LowerTier(Protocol):
    """Where cached blocks go that are to be overwritten (`engines.native.host_tier`)."""

    def evicted(self, block: int, key: Key, prefix: Prefix) -> None:
        """`block` still holds what `key` says, until the next step is launched."""
        ...

    def identity(self, key: Key) -> Prefix | None:
        """Of the prefix that the block of `key` completes, where the tier has it: it stays the same on its way up."""
        ...

    def registered(self, block: int, key: Key, prefix: Prefix) -> None:
        """`block` is full, computed, and can be found by `key` from now on."""
        ...


class BlockPool:
    """Blocks 1 … num_blocks − 1 of `block_size` tokens each."""

    def __init__(
        self, num_blocks: int, block_size: int, *, caching: bool = True, lower: LowerTier | None = None
    ) -> None:
        if num_blocks < 2:
            raise ValueError(f"the KV pool needs at least 2 blocks (block 0 is the null block), got {num_blocks}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.caching = caching
        self._lower = lower
        self.settled = 0  # newest step of which the runner is done
        self._next_prefix = 1
        self._fence: deque[tuple[int, list[int]]] = deque()  # (step, blocks given back while it was in flight)
        self._clear()

    def _clear(self) -> None:
        """All blocks free, nothing cached."""
        count = self.num_blocks
        self._references = [0] * count
        self._keys: list[Key | None] = [None] * count
        self._prefixes: list[Prefix] = [0] * count  # identity of the prefix that ends with the block
        self._index: dict[Key, int] = {}
        # Doubly linked free list in eviction order; the null block is its head and tail.
        self._after = [*range(1, count), NULL_BLOCK]
        self._before = [count - 1, *range(count - 1)]
        self.available = count - 1

    @property
    def usable(self) -> int:
        """Blocks that one request could own at most."""
        return self.num_blocks - 1

    @property
    def used(self) -> int:
        """Blocks with an owner or behind the fence; cached free blocks do not count."""
        return self.usable - self.available

    # Prefix cache

    def key(self, prefix: Prefix, tokens: NDArray[np.int32]) -> Key:
        """`tokens`: int32 [block_size]."""
        return (prefix, tokens.tobytes())

    def match(self, token_ids: NDArray[np.int32], salt: str) -> tuple[list[int], Prefix]:
        """Longest cached prefix in full blocks, and its identity. Takes no reference: `acquire` before `allocate`."""
        return self.match_after(salt, token_ids)

    def match_after(self, prefix: Prefix, token_ids: NDArray[np.int32]) -> tuple[list[int], Prefix]:
        """`match` of what follows the prefix of that identity."""
        blocks: list[int] = []
        if not self.caching:
            return blocks, prefix
        size = self.block_size
        for start in range(0, len(token_ids) - size + 1, size):
            block = self._index.get(self.key(prefix, token_ids[start : start + size]))
            if block is None:
                break
            blocks.append(block)
            prefix = self._prefixes[block]
        return blocks, prefix

    def register(self, block: int, key: Key) -> Prefix:
        """Make a full, computed block findable; returns the identity of the prefix that it completes.

        An equal block that is cached already stays the one to be found: tables are append-only, so this one is
        left to its owner and not swapped.
        """
        found = self._index.get(key)
        if found is not None:
            return self._prefixes[found]
        if self._keys[block] is not None:
            self._forget(block)
        prefix = self._lower.identity(key) if self._lower is not None else None
        if prefix is None:
            prefix = self._next_prefix
            self._next_prefix += 1
        self.enter(block, key, prefix)
        if self._lower is not None:
            self._lower.registered(block, key, prefix)
        return prefix

    def enter(self, block: int, key: Key, prefix: Prefix) -> None:
        """Make an owned block that holds what `key` says findable; nothing else is found by `key`."""
        self._prefixes[block] = prefix
        if self.caching:
            self._index[key] = block
            self._keys[block] = key

    def adopt(self, key: Key, prefix: Prefix) -> int:
        """A free block that from now on is the cached one of `key`. The caller checks `available`."""
        (block,) = self.allocate(1)
        self.enter(block, key, prefix)
        self._free([block])
        return block

    def identity(self, key: Key) -> Prefix | None:
        """Of the prefix that the cached block of `key` completes."""
        block = self._index.get(key)
        return None if block is None else self._prefixes[block]

    def demote(self, block: int) -> None:
        """A cached block is to be the first that is reused; one that is in use is not found any more either."""
        if self._references[block]:
            self.forget(block)
        else:
            self._unlink(block)
            self._link(block, after=NULL_BLOCK)

    def key_of(self, block: int) -> Key | None:
        """By which `block` is found; None: by none."""
        return self._keys[block]

    def touch(self, blocks: Sequence[int], fence: int) -> None:
        """They are in use until step `fence` is settled, and then the last to be evicted."""
        self.acquire(blocks)
        self.release(blocks, fence)

    def find(self, key: Key) -> int | None:
        return self._index.get(key)

    def forget(self, block: int) -> None:
        """Its content can't be trusted: nobody may find it."""
        if self._keys[block] is not None:
            self._forget(block)

    def prefix_after(self, blocks: Sequence[int], salt: str) -> Prefix:
        """Identity of the prefix that `blocks`, all registered, hold."""
        return self._prefixes[blocks[-1]] if blocks else salt

    def identities(self, blocks: Iterable[int]) -> list[Prefix]:
        """Of the prefixes that `blocks`, all registered, complete."""
        return [self._prefixes[block] for block in blocks]

    def idle_of(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` have no owner now, so that taking them uses up free blocks."""
        return sum(not self._references[block] for block in blocks)

    # Taking and giving back

    def acquire(self, blocks: Iterable[int]) -> None:
        """One more reference on each cached or owned block."""
        for block in blocks:
            if not self._references[block]:
                self._unlink(block)
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """`count` blocks of undefined content, the least recently used first. The caller checks `available`."""
        if count > self.available:
            raise RuntimeError(f"{count} KV blocks asked, {self.available} free")
        blocks = []
        for _ in range(count):
            block = self._after[NULL_BLOCK]
            self._unlink(block)
            key = self._keys[block]
            if key is not None:
                if self._lower is not None:
                    self._lower.evicted(block, key, self._prefixes[block])
                self._forget(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def release(self, blocks: Sequence[int], fence: int) -> None:
        """Give back one reference on each. They are free once step `fence`, the newest launched, is settled."""
        if not blocks:
            return
        if fence > self.settled:
            self._fence.append((fence, list(blocks)))
        else:
            self._free(blocks)

    def settle(self, step: int) -> None:
        """The runner is done with all steps up to `step`."""
        self.settled = max(self.settled, step)
        while self._fence and self._fence[0][0] <= self.settled:
            self._free(self._fence.popleft()[1])

    def _free(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):  # the tail of a sequence is evicted before its head
            self._references[block] -= 1
            if not self._references[block]:
                # What can't be found again is reused first.
                self._link(block, after=NULL_BLOCK if self._keys[block] is None else self._before[NULL_BLOCK])

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        assert key is not None
        del self._index[key]
        self._keys[block] = None

    def _link(self, block: int, after: int) -> None:
        following = self._after[after]
        self._after[after] = self._before[following] = block
        self._before[block], self._after[block] = after, following
        self.available += 1

    def _unlink(self, block: int) -> None:
        before, after = self._before[block], self._after[block]
        self._after[before], self._before[after] = after, before
        self.available -= 1

    # Integrity

    def check(self, owned: Iterable[Sequence[int]]) -> list[str]:
        """What is wrong, one sentence each. `owned`: the block table of every owner."""
        problems = []
        expected = Counter(block for table in owned for block in table)
        expected.update(block for _, blocks in self._fence for block in blocks)
        free = self._walk()
        if len(free) != self.available or len(set(free)) != len(free):
            problems.append(f"free list holds {len(free)} blocks ({len(set(free))} different), {self.available} said")
        linked = set(free)
        for block in range(1, self.num_blocks):
            if self._references[block] != expected[block]:
                problems.append(f"block {block} has {self._references[block]} references and {expected[block]} owners")
            if (block in linked) == bool(expected[block]):
                problems.append(f"block {block} is {'both free and owned' if block in linked else 'lost'}")
        if NULL_BLOCK in expected:
            problems.append("the null block is owned")
        stale = [key for key, block in self._index.items() if self._keys[block] != key]
        if stale or len(self._index) != sum(key is not None for key in self._keys):
            problems.append(f"prefix index out of step with the blocks ({len(stale)} stale entries)")
        return problems

    def heal(self, owned: Iterable[Sequence[int]]) -> list[str]:
        """`check`; where something is wrong, rebuild all from the owners' tables, forget the cache, and log it."""
        tables = [list(table) for table in owned]
        problems = self.check(tables)
        if problems:
            log.error("KV pool rebuilt after %d problems; first: %s", len(problems), problems[0])
            self._clear()
            for table in [*tables, *(blocks for _, blocks in self._fence)]:
                self.acquire(table)
        return problems

    def _walk(self) -> list[int]:
        """The free list in order; stops where it turns in a circle."""
        blocks: list[int] = []
        block = self._after[NULL_BLOCK]
        while block != NULL_BLOCK and len(blocks) <= self.num_blocks:
            blocks.append(block)
            block = self._after[block]
        return blocks
