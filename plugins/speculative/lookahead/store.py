"""What one tenant's requests have said: a ring of tokens, found by hash chains. The oldest makes room for the new.

Text that stands in it already is not written again (`novel`): a system prompt that begins each request is kept once,
and is new again when the ring has passed it, so what is used often never goes for long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engines.native.speculation.tree import Int32
from plugins.speculative.lookahead.chains import WINDOW, Chains, heads_for

ORDERS = (6, 3, 1)
"""Of the chains: long ones go past what is frequent, short ones find what little there is."""
LONG = ORDERS[0]
SMALLEST = 1 << 12  # tokens
END = -1
"""Between documents: no token, so that no match and no guess runs across."""
PIECE = 1 << 13
"""Tokens that are written at once when a ring is filled: about a millisecond."""
REPEAT = 32
"""Tokens in a row that must stand there already to be left out."""
STRIDE = 8
"""Tokens from one window that is looked for to the next: at its edges so much text may be written again."""
LINKS = 4
"""Places of an n-gram that are compared with new text."""
AFTER = 64
"""Places behind the last, so that what follows one can be read: REPEAT, and MAX_NODES + 1."""
CONTEXT = 16
"""Known tokens that are written with the new ones behind them, so that these are found again."""


def nbytes(capacity: int) -> int:
    """Of a ring of that many tokens: tokens, links of each order, and about half as many heads. About 20 to 25 bytes a
    token."""
    return 4 * ((1 + len(ORDERS)) * (capacity + WINDOW + AFTER) + len(ORDERS) * heads_for(capacity // 2))


class Store:
    """capacity: tokens. Positions count from WINDOW, with END before and after them, so that reading never wraps."""

    def __init__(self, capacity: int = SMALLEST) -> None:
        self.capacity = capacity
        self.nbytes = nbytes(capacity)
        self.tokens: Int32 = np.zeros(capacity + WINDOW + AFTER, np.int32)
        self.tokens[:WINDOW] = self.tokens[-AFTER:] = END
        self.ints = self.tokens.data
        self.bytes = self.ints.cast("B")
        size = heads_for(capacity // 2)
        self.chains = [Chains(order, capacity + WINDOW + AFTER, size) for order in ORDERS]
        self.head = WINDOW  # where the next token goes
        self.wrapped = False

    @property
    def used(self) -> int:
        """Tokens in it, ends of documents included."""
        return self.capacity if self.wrapped else self.head - WINDOW

    def fits(self, count: int) -> bool:
        """Whether a document of that many tokens can be written whole and over nothing else."""
        return not self.wrapped and self.head - WINDOW + count < self.capacity and count <= self.capacity // 2

    def novel(self, document: Int32) -> list[Int32]:
        """The stretches of `document` that no window of REPEAT tokens in the ring covers, with what leads there."""
        known = self._known(document)
        if not known.any():
            return [document]
        keep = ~known
        for step in range(1, CONTEXT + 1):
            keep[:-step] |= ~known[step:]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], keep.view(np.int8), [0]))))
        return [document[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True) if end - start > 1]

    def _known(self, document: Int32) -> NDArray[np.bool_]:
        """bool [k]: tokens inside a window that stands in the ring word for word."""
        covered = np.zeros(len(document) + 1, np.int32)
        count = len(document) - REPEAT + 1
        if count > 0:
            looked = np.append(np.arange(0, count - 1, STRIDE), count - 1)
            windows = np.lib.stride_tricks.sliding_window_view(document, REPEAT)[looked]
            places = self.chains[0].newest(self.chains[0].slots_of(windows))
            left = np.flatnonzero(places)
            for _ in range(LINKS):
                starts = places[left] - LONG
                held = self.tokens[starts + REPEAT - 1] == windows[left, REPEAT - 1]  # most fail by their last
                likely = np.flatnonzero(held)
                same = self.tokens[starts[likely][:, None] + np.arange(REPEAT)] == windows[left[likely]]
                held[likely] = same.all(1)
                begins = looked[left[held]]
                covered[begins] += 1
                np.add.at(covered, begins + REPEAT, -1)
                left = left[~held]
                places[left] = self.chains[0].earlier(places[left])
                left = left[places[left] > 0]
        return np.cumsum(covered[:-1]) > 0

    def append(self, document: Int32) -> None:
        """Write it and make it findable. Of one longer than half the ring, the end."""
        document = document[-(self.capacity // 2) :]
        if len(document) < 2:
            return
        if self.head + len(document) + 1 > WINDOW + self.capacity:
            self.tokens[self.head : WINDOW + self.capacity] = END
            self.head, self.wrapped = WINDOW, True
        end = self.head + len(document)
        self.tokens[self.head : end] = document
        self.tokens[end] = END
        for chains in self.chains:
            if len(document) > chains.order:
                chains.link_all(chains.slots(document)[:-1], self.head + chains.order)
        self.head = end + 1

    def fill(self, text: Int32, start: int = 0) -> int:
        """Write a piece of documents with END between them, oldest first, from `start` on → where the next begins."""
        piece = text[start : start + min(PIECE, self.capacity // 2)]
        ends = np.flatnonzero(piece == END)
        if len(ends) and ends[-1] > 0:  # cut at the end of a document, where there is one
            piece = piece[: ends[-1]]
        self.append(piece)
        return start + len(piece) + (len(ends) > 0 and len(piece) == ends[-1])

    def text(self) -> Int32:
        """int32 [used], a copy: all documents, oldest first, END behind each."""
        text, head = self.tokens[WINDOW : WINDOW + self.capacity], self.head - WINDOW
        return np.concatenate((text[head:], text[:head])) if self.wrapped else text[:head].copy()
