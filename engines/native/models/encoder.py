"""The BERT family as one encoder: embeddings, layers of attention both ways and a plain MLP, a norm after each half.

Texts of any lengths lie one after the other, without padding: every product is over real tokens only. Attention alone
needs them apart; it takes texts of like length together (`plan_groups`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engines.native.layers.linear import Linear
from engines.native.pooling.config import EncoderConfig


@dataclass(slots=True)
class Norm:
    weight: torch.Tensor  # [hidden]
    bias: torch.Tensor  # [hidden]


@dataclass(slots=True)
class EncoderLayer:
    """up: with its activation, [t, hidden] → [t, ffn]. qkv: [t, hidden] → [t, 3 hidden]."""

    qkv: Linear
    o: Linear
    attention_norm: Norm
    up: Linear
    down: Linear
    output_norm: Norm


@dataclass(slots=True)
class EncoderWeights:
    """types: [types, hidden]; type 0 is added to `positions` already, and type 1 is kept as its difference to 0."""

    words: torch.Tensor  # [vocab, hidden]
    positions: torch.Tensor  # [positions, hidden]
    second: torch.Tensor | None  # [hidden], None where the model has one type
    norm: Norm
    layers: list[EncoderLayer]


@dataclass(frozen=True, slots=True)
class Group:
    """Texts whose attention is computed together: `texts` of up to `longest` tokens, the batch's tokens from `first`
    to `last`. take: int64 [texts × longest], the token at each place, and any real one where a shorter text has none;
    mask: bool [texts, 1, 1, longest], True where there is one; keep: int64 [last − first], the places that are real.
    All None for texts of one length."""

    texts: int
    longest: int
    first: int
    last: int
    take: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    keep: torch.Tensor | None = None


@dataclass(slots=True)
class EncoderBatch:
    """t tokens of n texts in rising order of length. token_ids, positions: int64 [t]; second: float [t, 1], 1 for a
    token of the second segment, or None without any; wanted: int64 [m], the tokens whose last state is read, None for
    all."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    second: torch.Tensor | None
    groups: list[Group]
    wanted: torch.Tensor | None = None


PADDING = 1.15
"""How much more attention than needed a group may compute: a product of another size costs more than that on a CPU."""


def plan_groups(lengths: list[int], device: torch.device) -> list[Group]:
    """`lengths`: rising. Texts go together while their padded attention is at most PADDING times the needed."""
    groups, begin, first = [], 0, 0
    needed = 0
    for index, length in enumerate(lengths):
        padded = (index - begin + 1) * length * length
        if index > begin and padded > PADDING * (needed + length * length):
            groups.append(_group(lengths[begin:index], first, device))
            first += sum(lengths[begin:index])
            begin, needed = index, 0
        needed += length * length
    groups.append(_group(lengths[begin:], first, device))
    return groups


def _group(lengths: list[int], first: int, device: torch.device) -> Group:
    longest, last = lengths[-1], first + sum(lengths)
    if lengths[0] == longest:
        return Group(len(lengths), longest, first, last)
    sizes = torch.tensor(lengths)
    starts = first + torch.cumsum(sizes, 0) - sizes
    places = torch.arange(longest)
    real = places[None] < sizes[:, None]
    take = torch.where(real, starts[:, None] + places[None], starts[:, None]).flatten()
    keep = real.flatten().nonzero().flatten()
    return Group(
        len(lengths), longest, first, last, take.to(device), real[:, None, None, :].to(device), keep.to(device)
    )


class Encoder:
    def __init__(self, config: EncoderConfig, weights: EncoderWeights) -> None:
        self.config, self.weights = config, weights
        self._scale = config.head_dim**-0.5

    def hidden(self, batch: EncoderBatch) -> torch.Tensor:
        """The last layer's output at `batch.wanted`: [m, hidden]."""
        weights = self.weights
        x = F.embedding(batch.token_ids, weights.words) + F.embedding(batch.positions, weights.positions)
        if batch.second is not None and weights.second is not None:
            x = torch.addcmul(x, batch.second.to(x.dtype), weights.second)
        x = self._norm(x, weights.norm)
        for layer in weights.layers:
            attended = self._attend(layer.qkv(x), batch.groups)
            if layer is weights.layers[-1] and batch.wanted is not None:  # from here on, only what will be read
                attended, x = attended[batch.wanted], x[batch.wanted]
            x = self._norm(layer.o(attended).add_(x), layer.attention_norm)
            x = self._norm(layer.down(layer.up(x)).add_(x), layer.output_norm)
        return x

    def _norm(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        return F.layer_norm(x, (self.config.hidden,), norm.weight, norm.bias, self.config.norm_eps)

    def _attend(self, qkv: torch.Tensor, groups: list[Group]) -> torch.Tensor:
        """qkv [t, 3 hidden] → [t, hidden]."""
        heads, size = self.config.heads, self.config.head_dim
        parts = []
        for group in groups:
            own = qkv[group.first : group.last] if group.take is None else qkv.index_select(0, group.take)
            q, k, v = own.view(group.texts, group.longest, 3, heads, size).permute(2, 0, 3, 1, 4)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, scale=self._scale)
            flat = out.transpose(1, 2).reshape(-1, heads * size)
            parts.append(flat if group.keep is None else flat.index_select(0, group.keep))
        return parts[0] if len(parts) == 1 else torch.cat(parts)
