"""Token ids to vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

Embedding = Callable[[torch.Tensor], torch.Tensor]
"""ids int64 [t] → [t, hidden], in the dtype of the activations."""


class TableEmbedding:
    """table: [vocab, hidden], which may be narrower than the activations' `dtype`."""

    def __init__(self, table: torch.Tensor, dtype: torch.dtype) -> None:
        self.table, self.dtype = table, dtype

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.table).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Int8Table:
    """A table in 8 bits: row r is values[r] × scales[r]. values: int8 [vocab, hidden]; scales: float32 [vocab]."""

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, table: torch.Tensor) -> Int8Table:
        """Round to nearest, the greatest of a row at ±127."""
        values = torch.empty(table.shape, dtype=torch.int8, device=table.device)
        scales = torch.empty(len(table), dtype=torch.float32, device=table.device)
        for first in range(0, len(table), _ROWS):  # never all of it in float32
            rows = table[first : first + _ROWS].float()
            scale = (rows.abs().amax(dim=1) / 127).clamp_(min=1e-12)
            scales[first : first + _ROWS] = scale
            values[first : first + _ROWS] = (rows / scale[:, None]).round_().to(torch.int8)
        return cls(values, scales)


class Int8Embedding:
    def __init__(self, table: Int8Table, dtype: torch.dtype) -> None:
        self.table, self.dtype = table, dtype

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.table.values.index_select(0, ids).float()
        return rows.mul_(self.table.scales.index_select(0, ids)[:, None]).to(self.dtype)


class Int8Head:
    """The head of a model whose table is in 8 bits, and tied: one tensor for both. On a CPU a band of rows at a time is
    converted in the cache and multiplied; on a GPU the product reads bytes (`kernels.int8_head`)."""

    def __init__(self, table: Int8Table, dtype: torch.dtype) -> None:
        self._table = table
        vocab, hidden = table.values.shape
        self._band = max(1, min(vocab, _BAND_BYTES // (hidden * dtype.itemsize)))
        self._product = self._in_bands
        if table.values.device.type == "cuda":
            from engines.native.kernels.int8_head import int8_head  # no Triton where there is no GPU

            self._product = int8_head

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(x, self._table.values, self._table.scales)

    def _in_bands(self, x: torch.Tensor, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        vocab, hidden = values.shape
        out = x.new_empty(len(x), vocab)
        scratch = x.new_empty(self._band, hidden)
        for first in range(0, vocab, self._band):
            band = scratch[: min(self._band, vocab - first)].copy_(values[first : first + self._band])
            out[:, first : first + self._band] = F.linear(x, band)
        return out.mul_(scales)


_ROWS = 4096
_BAND_BYTES = 2 * 2**20  # of a scratch that stays in a core's cache


class ColumnEmbedding:
    """Reads the columns of a tied head that is kept as [hidden, vocab]: no second table."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.weight.index_select(1, ids).t().contiguous()


class ScaledEmbedding:
    """What `embedding` gives, times `scale`, which is rounded to the activations' `dtype` first, as Gemma does."""

    def __init__(self, embedding: Embedding, scale: float, dtype: torch.dtype) -> None:
        self.embedding, self.scale = embedding, float(torch.tensor(scale, dtype=dtype))

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids).mul_(self.scale)


class CenteredEmbedding:
    """What `embedding` gives, less each token's mean: where all that is added to it has mean 0 as well, LayerNorm is
    RMSNorm."""

    def __init__(self, embedding: Embedding) -> None:
        self.embedding = embedding

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        return (x - x.float().mean(-1, keepdim=True)).to(x.dtype)
