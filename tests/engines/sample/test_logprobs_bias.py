"""Log-probabilities over a large vocabulary are right to the last digits that float32 has, on average too: torch's CPU
log_softmax loses small terms as it adds them up one by one, and over a thousand tokens that is 0.07 nats."""

from __future__ import annotations

import torch

from engines.native.sample.logprobs import of_tokens

VOCAB, ROWS = 151_936, 64


def test_no_bias_over_a_large_vocabulary() -> None:
    logits = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(0)) * 2.5
    logits[:, 7] += 15.0  # one likely token beside many small terms
    tokens = torch.full((ROWS,), 7)
    own, _ = of_tokens(logits, tokens, 0)
    off = torch.tensor(own, dtype=torch.float64) - logits.double().log_softmax(dim=-1)[:, 7]
    assert off.abs().max() < 3e-6
    assert off.mean().abs() < 3e-7
