"""Token masks over logits on a GPU: what a grammar doesn't allow becomes −∞, in place, in one pass over its bits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096  # vocabulary entries per program


@triton.jit
def mask_kernel(logits, lines, bits, vocab, words, BLOCK: tl.constexpr):
    """Grid: masks, blocks of the vocabulary. logits [m, vocab], lines int64 [k], bits int32 [k, words]."""
    mask = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(bits + mask * words + token // 32, mask=token < vocab, other=-1)
    refused = ((word >> (token % 32)) & 1) == 0
    place = logits + tl.load(lines + mask) * vocab + token
    tl.store(place, tl.full([BLOCK], float("-inf"), logits.dtype.element_ty), mask=refused & (token < vocab))


def mask_logits(logits: torch.Tensor, lines: torch.Tensor, bits: torch.Tensor) -> None:
    """logits [m, vocab], contiguous, written over; lines int64 [k], which of its lines; bits int32 [k, words], where
    bit t % 32 of word t // 32 is set if token t may be drawn."""
    vocab = logits.shape[1]
    grid = (len(lines), triton.cdiv(vocab, BLOCK))
    mask_kernel[grid](logits, lines, bits, vocab, bits.shape[1], BLOCK=BLOCK, num_warps=4)
