"""Logits from an embedding table in 8 bits: a product that reads each value as one byte.

A program reads a band of the table once, scales nothing while it adds up, and multiplies each output by its row's
scale at the end. The table stands in the M dimension of the tensor cores' tile, as in `kernels.linear`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engines.native.kernels import INTERPRETED

BLOCK_N = 64  # rows of the table
BLOCK_K = 128
WIDEST_M = 64  # hidden states per program; more of them read the table again, out of the L2 cache


@triton.jit
def int8_head_kernel(
    x, values, scales, out, m, vocab,
    HIDDEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, INTERP: tl.constexpr,
):  # fmt: skip
    """Grid: bands of the table, bands of x. x [m, HIDDEN], values int8 [vocab, HIDDEN], scales float32 [vocab],
    out [m, vocab]."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for start in range(0, HIDDEN, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = k < HIDDEN
        place = values + n[:, None].to(tl.int64) * HIDDEN + k[None]
        band = tl.load(place, mask=(n < vocab)[:, None] & inside[None], other=0)
        states = tl.load(x + row[None] * HIDDEN + k[:, None], mask=(row < m)[None] & inside[:, None], other=0.0)
        if INTERP:
            states = states.to(tl.float32)
        total += tl.dot(band.to(states.dtype), states, input_precision="ieee")
    scale = tl.load(scales + n, mask=n < vocab, other=0.0)
    place = out + row[None].to(tl.int64) * vocab + n[:, None]
    tl.store(place, (total * scale[:, None]).to(out.dtype.element_ty), mask=(n < vocab)[:, None] & (row < m)[None])


def int8_head(x: torch.Tensor, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """x [m, hidden], values int8 [vocab, hidden], scales float32 [vocab] → [m, vocab], in x's dtype."""
    m, hidden = x.shape
    vocab = len(values)
    out = torch.empty(m, vocab, dtype=x.dtype, device=x.device)
    if not m:
        return out
    block_m = min(WIDEST_M, max(16, triton.next_power_of_2(m)))
    int8_head_kernel[triton.cdiv(vocab, BLOCK_N), triton.cdiv(m, block_m)](
        x.contiguous(), values, scales, out, m, vocab,
        HIDDEN=hidden, BLOCK_M=block_m, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, INTERP=INTERPRETED,
        num_warps=4, num_stages=4,
    )  # fmt: skip
    return out
