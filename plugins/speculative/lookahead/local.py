"""Where a row's newest tokens stood before, in its own prompt and output. Reads the scheduler's history in place."""

from __future__ import annotations

from engines.native.speculation.proposer import History
from plugins.speculative.lookahead.chains import Chains, heads_for, word
from plugins.speculative.lookahead.structure import Structure

SHORT, LONG = 2, 5
"""Orders of the two chains."""
ROOM = 1024
"""Output tokens that the heads are made for; more only make chains longer."""
REST = 32 * (LONG - SHORT)
"""Bits of an n-gram of order LONG that one of order SHORT has not."""


class Local:
    """Of one row, from `begin` on: positions up to `linked` − 1 are findable. flags: of each token id, for the views
    other than raw; empty has none."""

    def __init__(self, history: History, row: int, flags: bytes = b"") -> None:
        known, width = int(history.known[row]), history.token_ids.shape[1]
        size = heads_for(known + ROOM)
        self.short, self.long = Chains(SHORT, width, size), Chains(LONG, width, size)
        self.linked, self.flags = known, flags
        self.structure = Structure(flags) if flags else None
        prompt = history.token_ids[row, :known]
        for chains in (self.short, self.long):
            if known > chains.order:
                chains.link_all(chains.slots(prompt)[:-1], chains.order)
        if self.structure is not None:
            self.structure.begin(prompt)

    def extend(self, raw: memoryview, base: int, known: int, new: list[int]) -> None:
        """`new` tokens up to `known` have come; those of the row begin at token `base` of `raw`."""
        for position in range(self.linked, known):
            if position >= LONG:
                number = word(raw, base + position, LONG)
                self.long.link(number, position)
                self.short.link(number >> REST, position)
            elif position >= SHORT:
                self.short.link(word(raw, base + position, SHORT), position)
        if self.structure is not None:
            self.structure.extend(new, self.linked)
        self.linked = known
