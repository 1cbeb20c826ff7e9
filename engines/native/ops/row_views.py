"""Where each row of a batch has its queries and its keys: worked out once per pass, for all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engines.native.memory import GATHERED_KEYS
from engines.native.ops.base import Batch
from engines.native.quantized_kv import Pool


@dataclass(frozen=True, slots=True)
class RowView:
    """first, queries: of the row in the batch. places: its keys in the pool, a run of them or int64 [keys].
    mask: bool [queries, keys] of what is seen, None where all is or where the plain triangle (`causal`) says it."""

    first: int
    queries: int
    places: slice | torch.Tensor
    mask: torch.Tensor | None
    causal: bool


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """All rows of a batch that has one query each, as one problem whose keys are padded to whole blocks.

    blocks: int64 [hk × n × blocks of the longest row], numbers in a pool seen as [hk × B] pages of one head; or, for
    one row whose blocks follow each other, the run of its keys, which is read where it lies. span: what of the
    gathered keys is seen, where one row needs no mask. mask: float32 [hk × n, 1, keys], 0 or −inf.
    """

    rows: int
    blocks: torch.Tensor | slice
    span: slice
    mask: torch.Tensor | None

    def gathered(self, pool: torch.Tensor, block_size: int) -> torch.Tensor:
        """pool [hk, places, d] → [hk × rows, keys, d]."""
        if isinstance(self.blocks, slice):
            return pool[:, self.blocks]
        kv_heads, _, size = pool.shape
        # Copied a page at a time: three times as fast as by token.
        pages = torch.embedding(pool.view(-1, block_size * size), self.blocks)
        return pages.view(kv_heads * self.rows, -1, size)[:, self.span]


def decode_group(batch: Batch, cache: Pool, window: int) -> DecodeGroup | None:
    """cache: [B, hk, s, d]. None where the batch is no pure decode, or has rows too long to be padded."""
    rows = len(batch.seq_lens)
    if batch.max_query > 1 or len(batch.token_ids) != rows:
        return None
    if rows > 1 and rows * min(batch.max_seq, window or batch.max_seq) > GATHERED_KEYS:
        return None
    pool, kv_heads, size = cache.shape[:3]
    ends = batch.seq_lens.long()[:, None]
    oldest = (ends - window).clamp_(min=0) if window else torch.zeros_like(ends)
    first, last = oldest // size, (ends - 1) // size
    at = first + torch.arange(int((last - first).max()) + 1, device=ends.device)
    blocks = batch.block_tables.long().gather(1, at.minimum(last))
    span, mask = slice(None), None
    if rows == 1:
        low, high = int(oldest - first * size), int(ends - first * size)
        if bool((blocks[0, 1:] - blocks[0, :-1] == 1).all()):
            start = int(blocks[0, 0]) * size
            return DecodeGroup(1, slice(start + low, start + high), slice(None), None)
        span = slice(low, high)
    else:
        position = first * size + torch.arange(at.shape[1] * size, device=ends.device)
        unseen = (position < oldest) | (position >= ends)
        mask = torch.zeros(unseen.shape, device=ends.device).masked_fill_(unseen, -torch.inf)[:, None]
        mask = mask.repeat(kv_heads, 1, 1)
    heads = torch.arange(kv_heads, device=ends.device)[:, None, None] * pool
    return DecodeGroup(rows, (heads + blocks).flatten(), span, mask)


def row_views(batch: Batch, block_size: int, window: int) -> list[RowView]:
    """Rows with queries, in the order of the batch. Keys that no query sees (`window` > 0) are left out."""
    starts, lengths = batch.cu_query.tolist(), batch.seq_lens.tolist()
    words = None if batch.ancestors is None else batch.ancestors.cpu()
    tables = batch.block_tables.cpu().numpy()
    views = []
    for row, (length, table) in enumerate(zip(lengths, tables, strict=True)):
        queries = starts[row + 1] - starts[row]
        if queries == 0:
            continue
        oldest = max(0, length - queries + 1 - window) if window else 0  # key that the first query still sees
        used = table[: -(-length // block_size)]
        places: slice | torch.Tensor
        if (used[1:] - used[:-1] == 1).all():
            places = slice(int(used[0]) * block_size + oldest, int(used[0]) * block_size + length)
        else:
            at = torch.arange(oldest, length, device=batch.slots.device)
            places = batch.block_tables[row].long()[at // block_size] * block_size + at % block_size
        mask, causal = _mask(queries, length, oldest, window, batch)
        if words is not None and queries > 1 and bool(words[starts[row]] != 0):
            own = words[starts[row] : starts[row + 1]].to(batch.slots.device)
            mask, causal = _tree_mask(own, length, oldest), False
        views.append(RowView(starts[row], queries, places, mask, causal))
    return views


def _tree_mask(words: torch.Tensor, length: int, oldest: int) -> torch.Tensor:
    """words: int32 [queries], `Batch.ancestors` of one row: all before the pass is seen, and of the pass the ancestors.
    bool [queries, keys]."""
    queries = len(words)
    bits = (words[:, None] >> torch.arange(queries, device=words.device)[None]) & 1
    before = torch.ones(queries, length - queries - oldest, dtype=torch.bool, device=words.device)
    return torch.cat([before, bits.bool()], 1)


def _mask(queries: int, length: int, oldest: int, window: int, batch: Batch) -> tuple[torch.Tensor | None, bool]:
    if queries == 1:
        return None, False
    if queries == length and (not window or length <= window):
        return None, True
    at = torch.arange(length - queries, length, device=batch.slots.device)[:, None]
    key = torch.arange(oldest, length, device=batch.slots.device)[None]
    seen = key <= at
    return (seen & (key > at - window) if window else seen), False
