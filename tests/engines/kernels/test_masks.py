"""Bits of tokens over lines of logits, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from engines.native.kernels.masks import BLOCK, mask_logits

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("vocab", [77, 96, BLOCK + 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_only_what_is_refused_in_its_own_line_is_written(vocab: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(5, vocab, generator=generator).to(dtype)
    bits = torch.randint(-(2**31), 2**31, (2, -(-vocab // 32)), generator=generator, dtype=torch.int64).int()
    token = torch.arange(vocab)
    wanted = logits.clone()
    for mask, line in enumerate((3, 0)):
        refused = (bits[mask, token // 32] >> (token % 32)) & 1 == 0
        wanted[line, refused] = -torch.inf
    mask_logits(logits, torch.tensor([3, 0]), bits)
    assert torch.equal(logits, wanted)
