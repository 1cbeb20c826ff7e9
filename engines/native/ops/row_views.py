"""Where each row of a batch has its queries and its keys: worked out once per pass, for all layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engines.native.memory import ATTENDED, GATHERED_KEYS, SCORES
from engines.native.ops.base import Batch
from engines.native.quantized_kv import Pool

SUMMED = 128
"""Keys that one product sums over. A row's are read from a multiple of it on, so that each key is always summed with
the same others."""
RUN = 16
"""Keys come in whole ones of these; those behind a row's last are masked."""
QUERIES = 128
"""The most of a long chunk that are taken at once: keys that none of them sees are left out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries of one row. first, queries: in the batch. keys: how many of the row's, from its first.
    mask: float32 [queries, last keys of these], 0 or −inf; those before are seen by all."""

    first: int
    queries: int
    keys: int
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class RowView:
    """places: of the row's keys in the pool, a run of them or int64 [keys]."""

    places: slice | torch.Tensor
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """All rows of a batch that have one query each, as one problem whose keys are padded to whole blocks.

    blocks: int64 [hk × n × blocks of the longest row], numbers in a pool seen as [hk × B] pages of one head; or, for
    one row whose blocks follow each other, the run of its keys, which is read where it lies.
    mask: float32 [hk × n, 1, keys], 0 or −inf.
    """

    rows: int
    blocks: torch.Tensor | slice
    mask: torch.Tensor

    def gathered(self, pool: torch.Tensor, block_size: int) -> torch.Tensor:
        """pool [hk, places, d] → [hk × rows, keys, d]."""
        if isinstance(self.blocks, slice):
            return pool[:, self.blocks]
        kv_heads, _, size = pool.shape
        # Copied a page at a time: three times as fast as by token.
        pages = torch.embedding(pool.view(-1, block_size * size), self.blocks)
        return pages.view(kv_heads * self.rows, -1, size)


def decode_group(batch: Batch, cache: Pool, window: int) -> DecodeGroup | None:
    """cache: [B, hk, s, d]. None where the batch is no pure decode, has rows too long to be padded, or blocks that no
    window's beginning falls between."""
    rows = len(batch.seq_lens)
    pool, kv_heads, size = cache.shape[:3]
    if batch.max_query > 1 or len(batch.token_ids) != rows or (window and SUMMED % size):
        return None
    device = batch.seq_lens.device
    ends = batch.seq_lens.long()[:, None]
    oldest = (ends - window).clamp_(min=0) if window else torch.zeros_like(ends)
    first, last = oldest // SUMMED * (SUMMED // size), (ends - 1) // size
    whole = RUN // math.gcd(RUN, size)  # blocks that are whole runs
    width = -(-(int((last - first).max()) + 1) // whole) * whole
    if rows > 1 and rows * width * size > GATHERED_KEYS:
        return None
    at = first + torch.arange(width, device=device)
    blocks = batch.block_tables.long().gather(1, at.minimum(last))
    position = first * size + torch.arange(width * size, device=device)
    unseen = (position < oldest) | (position >= ends)
    mask = torch.zeros(unseen.shape, device=device).masked_fill_(unseen, -torch.inf)[:, None]
    if rows == 1 and int(last) - int(first) + 1 == width and bool((blocks[0, 1:] - blocks[0, :-1] == 1).all()):
        start = int(blocks[0, 0]) * size
        return DecodeGroup(1, slice(start, start + width * size), mask)
    heads = torch.arange(kv_heads, device=device)[:, None, None] * pool
    return DecodeGroup(rows, (heads + blocks).flatten(), mask.repeat(kv_heads, 1, 1))


def row_views(batch: Batch, block_size: int, heads: int, window: int) -> list[RowView]:
    """Rows with queries, in the order of the batch. Keys that no query sees (`window` > 0) are left out. What lies in a
    row's last block behind its last token is read and masked: a pool holds finite values everywhere."""
    starts, lengths = batch.cu_query.tolist(), batch.seq_lens.tolist()
    words = None if batch.ancestors is None else batch.ancestors.cpu()
    tables = batch.block_tables.cpu().numpy()
    views = []
    for row, (length, table) in enumerate(zip(lengths, tables, strict=True)):
        first, queries = starts[row], starts[row + 1] - starts[row]
        if queries == 0:
            continue
        before = length - queries
        oldest = max(0, before + 1 - window) // SUMMED * SUMMED if window else 0  # what the first query sees, or before
        end = oldest + _runs(length - oldest)
        used = table[oldest // block_size : -(-length // block_size)]
        places: slice | torch.Tensor
        if (used[1:] - used[:-1] == 1).all() and end <= -(-length // block_size) * block_size:
            start = int(used[0]) * block_size + oldest % block_size
            places = slice(start, start + end - oldest)
        else:  # a key behind the last is any that is written: it is masked
            at = torch.arange(oldest, end, device=batch.slots.device).clamp_(max=length - 1)
            places = batch.block_tables[row].long()[at // block_size] * block_size + at % block_size
        if words is not None and queries > 1 and bool(words[first] != 0):
            mask = _tree_mask(words[first : first + queries].to(batch.slots.device), end - length)
            views.append(RowView(places, [Piece(first, queries, end - oldest, mask)]))
            continue
        pieces = []
        most = min(QUERIES, max(ATTENDED, SCORES // (heads * (end - oldest))))
        for skipped in range(0, queries, most):
            at, count = before + skipped, min(most, queries - skipped)
            last = oldest + _runs(at + count - oldest)
            mask = _mask(at, count, oldest if window else at, last, window, batch.slots.device)
            pieces.append(Piece(first + skipped, count, last - oldest, mask))
        views.append(RowView(places, pieces))
    return views


def _runs(keys: int) -> int:
    return -(-keys // RUN) * RUN


def _mask(position: int, queries: int, first: int, end: int, window: int, device: torch.device) -> torch.Tensor:
    """Of queries from `position` on and keys `first` … `end` − 1."""
    at = torch.arange(position, position + queries, device=device)[:, None]
    key = torch.arange(first, end, device=device)[None]
    unseen = key > at
    if window:
        unseen |= key <= at - window
    return torch.zeros(unseen.shape, device=device).masked_fill_(unseen, -torch.inf)


def _tree_mask(words: torch.Tensor, behind: int) -> torch.Tensor:
    """For what the kernels of a GPU are compared with: a CPU's passes have no forks (`TorchOps.trees`).
    words: int32 [queries], `Batch.ancestors` of one row: all before the pass is seen, and of the pass the ancestors.
    behind: keys of the last run that are none of the row's. float32 [queries, queries + behind]."""
    queries = len(words)
    bits = (words[:, None] >> torch.arange(queries, device=words.device)[None]) & 1
    mask = torch.full((queries, queries + behind), -torch.inf, device=words.device)
    mask[:, :queries].masked_fill_(bits == 1, 0)
    return mask
