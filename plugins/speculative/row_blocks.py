"""KV blocks of a draft model's own pool: each row's follow each other where they can, since a CPU reads those without
gathering."""

from __future__ import annotations

import numpy as np

from engines.native.step import Int32


class RowBlocks:
    """num_blocks: of the pool, the null block (0) included. A row's first block is looked for in a part of the pool
    that is its own as long as others don't outgrow theirs."""

    def __init__(self, rows: int, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._share = max(1, (num_blocks - 1) // rows)
        self._free = np.ones(num_blocks, np.bool_)
        self._free[0] = False
        self._held: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        return int(self._free.sum())

    def grow(self, row: int, tokens: int) -> list[tuple[int, int, list[int]]] | None:
        """So that `row` holds `tokens`: what is new, as `StepPlan.new_blocks` has it; None where the pool is short,
        which leaves everything as it was."""
        held = self._held.setdefault(row, [])
        need = -(-tokens // self.block_size) - len(held)
        if need <= 0:
            return []
        if need > self.free:
            return None
        first = len(held)
        for _ in range(need):
            wanted = held[-1] + 1 if held else 1 + (row * self._share) % (len(self._free) - 1)
            block = wanted if wanted < len(self._free) and self._free[wanted] else int(self._free.argmax())
            self._free[block] = False
            held.append(block)
        return [(row, first, held[first:])]

    def release(self, row: int) -> None:
        for block in self._held.pop(row, []):
            self._free[block] = True

    def check(self) -> list[str]:
        """What is wrong: blocks that two rows hold, or nobody; [] if nothing is."""
        held: Int32 = np.array([block for blocks in self._held.values() for block in blocks], np.int32)
        counts = np.bincount(held, minlength=len(self._free))
        wrong = np.flatnonzero((counts > 1) | ((counts > 0) == self._free))
        return [f"block {block} is held {counts[block]} times" for block in wrong.tolist() if block]
