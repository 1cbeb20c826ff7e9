"""Strict mode on a CPU: what a token gets depends on its own row alone, to the last bit.

Attention is the one operation of `TorchOps` whose sums change with the company: how many queries a chunk has and how
long its keys are decides how a library cuts its products. Here the work is cut by absolute position instead: queries
16·j … 16·j + 15 of a sequence make one tile, with the keys 0 … 16·j + 15, whether they come one at a time, in a chunk
or beside a cached prefix. What is missing of a tile is padding. So each product has the shape that j gives it, and a
query its own line in it.

The matrix products are `PackedLinear` and `DynamicInt8Linear`, whose rows do not depend on each other. That is a
property of a library's build and not of its contract, so `engines.native.strict` runs the loaded model both ways and
compares bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from engines.native.ops.base import Batch
from engines.native.ops.capped import cap_scores
from engines.native.ops.torch_ops import TorchOps
from engines.native.quantized_kv import Pool
from engines.native.sample.sampler import Sampler
from engines.native.sample.strict_sampler import StrictSampler

TILE = 16
"""Queries in a tile, and the step in which its keys grow."""
Scored = Callable[[torch.Tensor], torch.Tensor]
"""Products of queries and keys, which it may write over → scores."""


class StrictOps(TorchOps):
    trees = False  # a tile's mask is made of positions

    def attention(
        self, q: torch.Tensor, k_cache: Pool, v_cache: Pool, batch: Batch, scale: float, window: int
    ) -> torch.Tensor:
        return self._attend(q, k_cache, v_cache, batch, window, lambda products: products.mul_(scale))

    def capped_attention(
        self,
        q: torch.Tensor,
        k_cache: Pool,
        v_cache: Pool,
        batch: Batch,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        return self._attend(q, k_cache, v_cache, batch, window, lambda products: cap_scores(products, scale, softcap))

    def _attend(
        self, q: torch.Tensor, k_cache: Pool, v_cache: Pool, batch: Batch, window: int, scored: Scored
    ) -> torch.Tensor:
        out = torch.empty_like(q)
        for tile in self._tiles(batch, k_cache.shape[2], window):
            keys, values = self._rows(k_cache, tile.places)[0], self._rows(v_cache, tile.places)[0]
            tile.attend(q, keys, values, out, scored)
        return out

    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        return StrictSampler(rows, vocab, device)

    def _tiles(self, batch: Batch, block_size: int, window: int) -> list[_Tile]:
        name = f"tiles {window}"
        if name not in batch.shared:
            batch.shared[name] = _tiles(batch, block_size, window)
        tiles: list[_Tile] = batch.shared[name]
        return tiles


class _Tile:
    """Part of one row's queries. first: of them in the batch; count; line: of the first in the tile;
    places: int64 [keys], where the keys lie in the pool; mask: float32 [16, keys], 0 or −inf."""

    def __init__(self, first: int, count: int, line: int, places: torch.Tensor, mask: torch.Tensor) -> None:
        self.first, self.count, self.line = first, count, line
        self.places, self.mask = places, mask

    def attend(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor, scored: Scored
    ) -> None:
        """q, out [t, hq, d] of the batch; keys, values [hk, keys, d], of its places."""
        kv_heads, size = keys.shape[0], q.shape[2]
        group = q.shape[1] // kv_heads
        own = slice(self.first, self.first + self.count)
        padded = q.new_zeros(TILE, kv_heads, group, size)
        padded[self.line : self.line + self.count] = q[own].view(self.count, kv_heads, group, size)
        lines = padded.permute(1, 2, 0, 3).reshape(kv_heads, group * TILE, size)
        scores = scored(torch.bmm(lines, keys.transpose(1, 2)))
        scores.view(kv_heads, group, TILE, -1).add_(self.mask)
        found = torch.bmm(scores.softmax(-1), values).view(kv_heads, group, TILE, size)
        out[own] = found.permute(2, 0, 1, 3)[self.line : self.line + self.count].reshape(self.count, -1, size)


def _tiles(batch: Batch, block_size: int, window: int) -> list[_Tile]:
    starts, lengths = batch.cu_query.tolist(), batch.seq_lens.tolist()
    tiles = []
    for row, length in enumerate(lengths):
        count = starts[row + 1] - starts[row]
        table = batch.block_tables[row].long()
        position = length - count
        while position < length:
            end = min(length, position // TILE * TILE + TILE)
            first = starts[row] + position - (length - count)
            tiles.append(_tile(table, block_size, window, first, position, end))
            position = end
    return tiles


def _tile(table: torch.Tensor, block_size: int, window: int, first: int, begin: int, end: int) -> _Tile:
    """Queries at positions `begin` … `end` − 1 of a row, all in one tile."""
    base = begin // TILE * TILE
    oldest = max(0, base + 1 - window) // TILE * TILE if window else 0
    at = torch.arange(oldest, base + TILE)
    query = torch.arange(base, base + TILE)[:, None]
    seen = at <= query
    if window:
        seen &= at > query - window
    mask = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    known = at.clamp(max=end - 1)  # the rest of the tile is not written yet: any finite value, its weight is 0
    places = table[known // block_size] * block_size + known % block_size
    return _Tile(first, end - begin, begin - base, places, mask)
