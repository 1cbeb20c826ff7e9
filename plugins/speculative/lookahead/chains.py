"""Where did these tokens stand before? Hash chains over n-grams, as in LZ77: a head per hash, and behind each position
the one before it with the same hash. A position stands for what follows: tokens p − order … p − 1 lead to position p.

A hash only finds; whoever reads compares the tokens (`matched`), so two n-grams with one hash cost time, not truth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engines.native.speculation.tree import Int32

WINDOW = 16
"""Tokens that are compared at a place that is found."""

_BELOW = (5, 3, 3, 9, 3, 1, 3, 19, 15, 1, 5, 1, 3, 9, 3, 15, 3)
"""How far the greatest prime lies below 2**8 … 2**24."""


def heads_for(tokens: int) -> int:
    """A prime number of heads for so many tokens, about as many."""
    power = min(24, max(8, (tokens - 1).bit_length()))
    return (1 << power) - _BELOW[power - 8]


class Chains:
    """Of one order. `size`: heads, as `heads_for` gives it. An n-gram is a number, its tokens being digits of base 2³²
    with the newest first, and its slot that number modulo `size`: Python and numpy make it equally fast.

    Positions are order … capacity − 1, and 0 is none. Takes 4 × (size + capacity) bytes."""

    def __init__(self, order: int, capacity: int, size: int) -> None:
        self.order, self.size = order, size
        self.nbytes = 4 * (size + capacity)
        self._heads = np.zeros(size, np.int32)  # pages that nothing leads to take no memory, and no time to make
        self._before = np.empty(capacity, np.int32)  # only read where a head or a chain leads to
        self.heads, self.before = self._heads.data, self._before.data  # scalars twice as fast as numpy's

    def slots(self, tokens: Int32) -> NDArray[np.int64]:
        """tokens int32 [k] → int64 [k − order + 1], the slots of its n-grams in order."""
        return self.slots_of(np.lib.stride_tricks.sliding_window_view(tokens, self.order))

    def slots_of(self, grams: Int32) -> NDArray[np.int64]:
        """grams int32 [k, order] or wider, of which the first tokens count → int64 [k]."""
        base = (1 << 32) % self.size
        total = np.zeros(len(grams), np.int64)
        for step in range(self.order - 1, -1, -1):
            total = (total * base + grams[:, step].astype(np.uint32)) % self.size
        return total

    def link(self, number: int, position: int) -> None:
        """Put one position before all others of its slot. number: its n-gram, as `word` makes it."""
        slot = number % self.size
        self.before[position] = self.heads[slot]
        self.heads[slot] = position

    def link_all(self, slots: NDArray[np.int64], first: int) -> None:
        """As `link` of first, first + 1, … with these slots, in that order."""
        if not len(slots):
            return
        packed = (slots << 32) | np.arange(len(slots))  # sorts three times as fast as a stable argsort
        packed.sort()
        ranked, positions = packed >> 32, ((packed & 0xFFFFFFFF) + first).astype(np.int32)
        new = np.ones(len(slots), np.bool_)  # the first of its slot
        np.not_equal(ranked[1:], ranked[:-1], out=new[1:])
        before = np.empty(len(slots), np.int32)
        before[1:] = positions[:-1]
        before[new] = self._heads[ranked[new]]
        self._before[positions] = before
        last = np.append(new[1:], True)
        self._heads[ranked[last]] = positions[last]

    def newest(self, slots: NDArray[np.int64]) -> Int32:
        """int32 [k]: the newest position of each slot, 0 = none."""
        return self._heads[slots]

    def earlier(self, positions: Int32) -> Int32:
        """int32 [k]: the position before each on its chain, 0 = none."""
        return self._before[positions]


def word(buffer: memoryview, end: int, span: int) -> int:
    """The `span` int32 tokens before `end` of a buffer of bytes as one integer, the newest in its highest bits."""
    return int.from_bytes(buffer[(end - span) * 4 : end * 4], "little")


def matched(one: int, other: int, span: int) -> int:
    """How many of their newest tokens are the same; both of `span` tokens, as `word` makes them."""
    return span - (((one ^ other).bit_length() + 31) >> 5)
