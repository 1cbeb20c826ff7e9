"""Where each row of a batch has its queries and its keys: worked out once per pass, for all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engines.native.ops.base import Batch


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
    """All rows of a batch that has one query each, as one padded problem: their keys are gathered, which for short
    rows costs less than a call per row. places: int64 [n × keys], mask: float32 [n, 1, keys], 0 or −inf."""

    rows: int
    keys: int
    places: torch.Tensor
    mask: torch.Tensor


GROUP_KEYS = 768
"""Keys of the longest row up to which gathering wins."""


def decode_group(batch: Batch, block_size: int, window: int) -> DecodeGroup | None:
    """None where the batch is one row, is no pure decode, or has rows too long to be copied."""
    rows, longest = len(batch.seq_lens), min(batch.max_seq, window or batch.max_seq)
    if batch.max_query > 1 or rows == 1 or len(batch.token_ids) != rows or longest > GROUP_KEYS:
        return None
    ends = batch.seq_lens.long()[:, None]
    first = (ends - window).clamp_(min=0) if window else torch.zeros_like(ends)
    at = first + torch.arange(longest, device=ends.device)
    beyond = at >= ends
    at = at.minimum(ends - 1)
    places = batch.block_tables.long().gather(1, at // block_size) * block_size + at % block_size
    mask = torch.zeros(rows, 1, longest, device=ends.device).masked_fill_(beyond[:, None], -torch.inf)
    return DecodeGroup(rows, longest, places.flatten(), mask)


def row_views(batch: Batch, block_size: int, window: int) -> list[RowView]:
    """Rows with queries, in the order of the batch. Keys that no query sees (`window` > 0) are left out."""
    starts, lengths = batch.cu_query.tolist(), batch.seq_lens.tolist()
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
        views.append(RowView(starts[row], queries, places, *_mask(queries, length, oldest, window, batch)))
    return views


def _mask(queries: int, length: int, oldest: int, window: int, batch: Batch) -> tuple[torch.Tensor | None, bool]:
    if queries == 1:
        return None, False
    if queries == length and (not window or length <= window):
        return None, True
    at = torch.arange(length - queries, length, device=batch.slots.device)[:, None]
    key = torch.arange(oldest, length, device=batch.slots.device)[None]
    seen = key <= at
    return (seen & (key > at - window) if window else seen), False
