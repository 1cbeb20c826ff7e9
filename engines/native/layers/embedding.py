"""Token ids to vectors."""

from __future__ import annotations

from collections.abc import Callable

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
