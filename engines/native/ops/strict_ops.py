"""Strict mode on a CPU: what a token gets depends on its own row alone, to the last bit.

Attention (`invariant_attention`), chains of guesses and the int8 products keep that for every CPU engine. What strict
mode adds: random draws one row at a time, no layer that takes another way for few rows, and `engines.native.strict`,
which runs the loaded model both ways and compares bits.
"""

from __future__ import annotations

import torch

from engines.native.ops.torch_ops import TorchOps
from engines.native.sample.sampler import Sampler
from engines.native.sample.strict_sampler import StrictSampler


class StrictOps(TorchOps):
    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        return StrictSampler(rows, vocab, device)
