"""Rotary position embedding: the table of cosines and sines."""

from __future__ import annotations

import math

import torch

from engines.native.models.config import Rope


def cos_sin_table(rope: Rope, head_dim: int, positions: int, factors: torch.Tensor | None) -> torch.Tensor:
    """float32 [positions, head_dim]: cosines of the head_dim / 2 angles, then their sines.

    factors: float32 [head_dim / 2], divisors of the frequencies, for rope.kind "factors".
    """
    frequencies = rope.theta ** (-torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim)
    if rope.kind == "linear":
        frequencies = frequencies / rope.factor
    elif rope.kind == "llama3":
        frequencies = _llama3(rope, frequencies)
    elif rope.kind == "factors":
        if factors is None:
            raise ValueError("rope.kind is 'factors', but no factors are given")
        frequencies = frequencies / factors.float()
    angles = torch.arange(positions).float()[:, None] * frequencies[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _llama3(rope: Rope, frequencies: torch.Tensor) -> torch.Tensor:
    """Short wavelengths stay, long ones are slowed by `factor`, those between are blended."""
    wavelengths = 2 * math.pi / frequencies
    blend = (rope.original_context / wavelengths - rope.low) / (rope.high - rope.low)
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies
