"""Stateless noise for sampling: Gumbel(seed, position, token), the same on every device and in every batch.

A token is drawn as argmax(logits / temperature + gumbel), which samples the softmax exactly (Gumbel-max). Nothing is
stored between draws, so a result depends neither on the batch, nor on preemption, nor on how many tokens a step tries.
`engines/native/kernels/sampling.py` computes the same function on the GPU; a change here is a change there.

Definition, all arithmetic on unsigned 32-bit integers:
    mix(x)   "lowbias32" of C. Wellons, https://nullprogram.com/blog/2018/07/31/: bijective, bias 0.17 of 1000
    k0 = mix(mix(mix(lo + A) ^ hi) ^ position)      lo, hi: halves of the 64-bit seed
    k1 = mix(mix(mix(hi + B) ^ position) ^ lo)
    h  = mix(mix(token ^ k0) + k1)
    v  = min((h + ½) / 2³², 1 − 2⁻²⁴), float32      uniform in (0, 1), fine-grained near 0
    E  = −log(1 − v)                                exponential; its lower end makes the large Gumbel values
    g  = −log(E)
"""

from __future__ import annotations

import torch

KEY_A = 0x9E3779B9
KEY_B = 0x85EBCA6B
MULTIPLY_1 = 0x7FEB352D
MULTIPLY_2 = 0x846CA68B
SERIES_BELOW = 2.0**-8  # under it −log(1 − v) is taken as v + v²/2 + v³/3, exact to float32

_MASK = 0xFFFFFFFF


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Gumbel noise, float32 [n, v], on the device of the inputs.

    seeds: int64 [n], any value; positions: int64 [n], index in the sequence of the token to be drawn (the number of
    tokens before it), < 2³²; tokens: int64 [v] or [n, v], token ids (`torch.arange(vocab_size)` for all of them).
    """
    low, high, position = seeds & _MASK, (seeds >> 32) & _MASK, positions & _MASK
    k0 = _mix(_mix(_mix((low + KEY_A) & _MASK) ^ high) ^ position)
    k1 = _mix(_mix(_mix((high + KEY_B) & _MASK) ^ position) ^ low)
    hashed = _mix((_mix(tokens ^ k0[:, None]) + k1[:, None]) & _MASK)
    uniform = ((hashed.to(torch.float32) + 0.5) * 2.0**-32).clamp_(max=1.0 - 2.0**-24)
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0)))
    exponential = torch.where(uniform < SERIES_BELOW, series, -torch.log(1.0 - uniform))
    return -torch.log(exponential)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """`x`: int64 holding a value < 2³². Products wrap in 64 bits; their low 32 bits are right."""
    x = x ^ (x >> 16)
    x = (x * MULTIPLY_1) & _MASK
    x = x ^ (x >> 15)
    x = (x * MULTIPLY_2) & _MASK
    return x ^ (x >> 16)
