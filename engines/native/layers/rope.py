"""Rotary position embedding: the table of cosines and sines, and the order that rows of q and k take for it.

The decoder turns pairs (i, i + d/2) of a whole head and nothing else. Models that pair (2i, 2i + 1), or turn only a
part of a head, get there by another order of the rows of q and k, the same for both, which no product of the two sees;
what is not turned has the angle 0.
"""

from __future__ import annotations

import math

import torch

from engines.native.models.config import Rope


def cos_sin_table(
    rope: Rope | None, head_dim: int, positions: int, factors: torch.Tensor | None = None
) -> torch.Tensor:
    """float32 [positions, head_dim]: cosines of the head_dim / 2 angles, then their sines. rope None: nothing turns.

    factors: float32 [head_dim / 2], divisors of the frequencies, for rope.kind "factors".
    """
    cos, sin = torch.ones(positions, head_dim // 2), torch.zeros(positions, head_dim // 2)
    if rope is not None:
        angles = torch.arange(positions).float()[:, None] * _frequencies(rope, head_dim, positions, factors)[None]
        turned = angles.shape[1]
        cos[:, :turned] = angles.cos() * rope.attention_factor
        sin[:, :turned] = angles.sin() * rope.attention_factor
    return torch.cat([cos, sin], dim=-1)


def row_order(rope: Rope | None, head_dim: int) -> torch.Tensor | None:
    """int64 [head_dim]: which row of a head of the file comes at each place; None where they stay as they are."""
    if rope is None or not (rope.dims or rope.interleaved):
        return None
    dims = rope.dims or head_dim
    turned = torch.arange(dims).view(-1, 2) if rope.interleaved else torch.arange(dims).view(2, -1).t()
    first, second = turned.unbind(1)
    still, too = torch.arange(dims, head_dim).view(2, -1)
    return torch.cat([first, still, second, too])


def reordered(rows: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """rows [heads × head_dim, …] in the order of `row_order`, head by head."""
    if order is None:
        return rows
    heads = rows.view(-1, len(order), *rows.shape[1:])
    return heads[:, order.to(rows.device)].reshape(rows.shape)


def _frequencies(rope: Rope, head_dim: int, positions: int, factors: torch.Tensor | None) -> torch.Tensor:
    """float32 [pairs that turn], radians per token."""
    dims = rope.dims or head_dim
    frequencies = rope.theta ** (-torch.arange(0, dims, 2, dtype=torch.int64).float() / dims)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, frequencies)
    if rope.kind == "yarn":
        return _yarn(rope, frequencies, dims)
    if rope.kind == "longrope":
        return frequencies / _longrope(rope, dims, positions)
    if rope.kind == "factors":
        if factors is None:
            raise ValueError("rope.kind is 'factors', but no factors are given")
        return frequencies / factors.float()
    return frequencies


def _llama3(rope: Rope, frequencies: torch.Tensor) -> torch.Tensor:
    """Short wavelengths stay, long ones are slowed by `factor`, those between are blended."""
    wavelengths = 2 * math.pi / frequencies
    blend = (rope.original_context / wavelengths - rope.low) / (rope.high - rope.low)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def _yarn(rope: Rope, frequencies: torch.Tensor, dims: int) -> torch.Tensor:
    """As _llama3, but blended over the numbers of the pairs between those that turn beta_fast and beta_slow times."""

    def pair(turns: float) -> float:
        return dims * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    slowed = (torch.arange(dims // 2).float() - low) / max(high - low, 0.001)
    slowed = slowed.clamp(0, 1)
    return frequencies * (1 - slowed) + frequencies / rope.factor * slowed


def _longrope(rope: Rope, dims: int, positions: int) -> torch.Tensor:
    """One set for all of a model's life, since the cache holds rotated keys: the long one where requests may be longer
    than the original context."""
    chosen = rope.long if positions > rope.original_context else rope.short
    if len(chosen) != dims // 2:
        raise ValueError(f"longrope has {len(chosen)} factors, but {dims // 2} pairs are turned")
    return torch.tensor(chosen)
