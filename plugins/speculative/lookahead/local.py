"""Where a row's newest tokens stood before, in its own prompt and output. Reads the scheduler's history in place."""

from __future__ import annotations

from engines.native.speculation.proposer import History
from plugins.speculative.lookahead.chains import Chains, heads_for, word
from plugins.speculative.lookahead.structure import Structure

LONG, SHORT, LEAST = ORDERS = (5, 2, 1)
"""Of the chains."""
ROOM = 1024
"""Output tokens that the heads are made for; more only make chains longer."""


class Local:
    """Of one row, from `begin` on: positions up to `linked` − 1 are findable. flags: of each token id, for the views
    other than raw; empty has none."""

    def __init__(self, history: History, row: int, flags: bytes = b"") -> None:
        known, width = int(history.known[row]), history.token_ids.shape[1]
        size = heads_for(known + ROOM)
        self.chains = [Chains(order, width, size) for order in ORDERS]
        self._links = [(chains.heads, chains.before, size, 32 * (LONG - chains.order)) for chains in self.chains]
        self.linked, self.flags = known, flags
        self.structure = Structure(flags) if flags else None
        prompt = history.token_ids[row, :known]
        for chains in self.chains:
            if known > chains.order:
                chains.link_all(chains.slots(prompt)[:-1], chains.order)
        if self.structure is not None:
            self.structure.begin(prompt)

    def extend(self, raw: memoryview, base: int, known: int, new: list[int]) -> None:
        """`new` tokens up to `known` have come; those of the row begin at token `base` of `raw`."""
        for position in range(self.linked, known):
            if position >= LONG:
                number = word(raw, base + position, LONG)
                for heads, before, size, shift in self._links:  # as Chains.link, but this is done for each token
                    slot = (number >> shift) % size
                    before[position] = heads[slot]
                    heads[slot] = position
            else:
                for chains in self.chains:
                    if position >= chains.order:
                        chains.link(word(raw, base + position, chains.order), position)
        if self.structure is not None:
            self.structure.extend(new, self.linked)
        self.linked = known
