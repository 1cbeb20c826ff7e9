"""The scheduler's columns of the row table: plain numpy, so that a step costs a few array operations, not a loop."""

from __future__ import annotations

import numpy as np

from engines.native.request import MAX_STOP_TOKEN_IDS, Request
from engines.native.step import Int32


class RowPool:
    """Which rows are free. One that is given back is so once step `fence`, which may still touch it, is settled."""

    def __init__(self, max_num_seqs: int) -> None:
        self._count = max_num_seqs
        self._free = list(range(max_num_seqs - 1, -1, -1))
        self._fence: list[tuple[int, int]] = []  # (step, row)

    def __bool__(self) -> bool:
        return bool(self._free)

    def take(self) -> int:
        return self._free.pop()

    def release(self, row: int, fence: int, settled: int) -> None:
        """fence: newest launched step; settled: newest committed one."""
        self._fence.append((fence, row))
        self.settle(settled)

    def settle(self, step: int) -> None:
        self._free += [row for fence, row in self._fence if fence <= step]
        self._fence = [(fence, row) for fence, row in self._fence if fence > step]

    def check(self, running: list[int]) -> list[str]:
        rows = sorted([*self._free, *(row for _, row in self._fence), *running])
        return [] if rows == list(range(self._count)) else [f"rows do not add up: {rows}"]


class RowTable:
    """One line per row (request slot). A row belongs to one request from `fill` to `clear`.

    All columns are int32 [max_num_seqs] unless stated. token_ids [max_num_seqs, max_len] is only touched where
    tokens are, so unused pages of it cost no memory.
    """

    def __init__(self, max_num_seqs: int, max_len: int) -> None:
        self.requests: list[Request | None] = [None] * max_num_seqs
        self.token_ids: Int32 = np.empty((max_num_seqs, max_len), np.int32)
        self.stop_ids: Int32 = np.full((max_num_seqs, MAX_STOP_TOKEN_IDS), -1, np.int32)
        self.ids = np.zeros(max_num_seqs, np.int64)
        self.alive = np.zeros(max_num_seqs, np.bool_)
        self.constrained = np.zeros(max_num_seqs, np.bool_)  # follows a grammar
        self.slots: Int32 = np.zeros(max_num_seqs, np.int32)  # tenants' (`engines.native.tenants`)
        self.prompt_len: Int32 = np.zeros(max_num_seqs, np.int32)
        # As of the newest launched step: prompt and output, and how much of it will then be in the KV cache.
        self.num_tokens: Int32 = np.zeros(max_num_seqs, np.int32)
        self.num_computed: Int32 = np.zeros(max_num_seqs, np.int32)
        # As of the newest committed step: tokens whose values are known here, and whose keys are in the KV cache.
        self.known: Int32 = np.zeros(max_num_seqs, np.int32)
        self.committed: Int32 = np.zeros(max_num_seqs, np.int32)
        self.num_blocks: Int32 = np.zeros(max_num_seqs, np.int32)
        self.registered: Int32 = np.zeros(max_num_seqs, np.int32)  # leading blocks known to the prefix cache
        self.min_total: Int32 = np.zeros(max_num_seqs, np.int32)  # no stop id counts before
        self.max_total: Int32 = np.zeros(max_num_seqs, np.int32)  # ends with `length` there

    def fill(self, row: int, request: Request, max_total: int) -> None:
        count = len(request.token_ids)
        self.requests[row] = request
        self.token_ids[row, :count] = request.token_ids
        stop_ids = request.params.stop_token_ids
        self.stop_ids[row] = -1
        self.stop_ids[row, : len(stop_ids)] = stop_ids
        self.ids[row] = request.id
        self.alive[row] = True
        self.constrained[row] = request.matcher is not None
        self.slots[row] = request.slot
        self.prompt_len[row] = request.prompt_len
        self.num_tokens[row] = self.known[row] = count
        self.num_computed[row] = self.committed[row] = self.num_blocks[row] = self.registered[row] = 0
        self.min_total[row] = request.prompt_len + request.params.min_tokens
        self.max_total[row] = max_total

    def clear(self, row: int) -> None:
        self.requests[row] = None
        self.alive[row] = False

    def history(self, row: int) -> Int32:
        """A copy of the row's tokens, int32 [known]."""
        return self.token_ids[row, : self.known[row]].copy()
