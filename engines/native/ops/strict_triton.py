"""Strict mode on a GPU: what a token gets depends on its own row alone, to the last bit.

Where the other operations cut work by what is in the pass, these cut it the same way always: attention in one tile, key
tiles from absolute positions on, unsplit (`attention_plan.fixed_plan`), never by a library; products by
`layers.fixed_gpu`, which a strict engine's layers are made of. Norms, RoPE and draws are a program per token anyway.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engines.native.kernels.attention_plan import fixed_plan
from engines.native.kernels.linear import fixed_linear
from engines.native.ops.base import Batch
from engines.native.ops.quantized_kv_triton import QuantizedKvTritonOps
from engines.native.ops.triton_ops import Part, TritonOps
from engines.native.quantized_kv import Pool
from engines.native.sample.sampler import Sampler
from engines.native.sample.strict_triton_sampler import StrictTritonSampler


class StrictTritonOps(TritonOps):
    trees = False  # a word for each query makes another kernel

    def _prompts(self, batch: Batch, k_cache: Pool) -> dict[int, int]:
        return {}

    def _parts(self, q: torch.Tensor, k_cache: Pool, batch: Batch, window: int, prompts: dict[int, int]) -> list[Part]:
        """One launch for everything."""
        kv_heads, _, head_dim = k_cache.shape[1:]
        pairs = self._pairs(len(batch.seq_lens), batch.max_query, batch.max_seq)
        launch = fixed_plan(
            tokens=len(q), rows=len(batch.seq_lens), group=q.shape[1] // kv_heads, head_dim=head_dim, dtype=q.dtype,
            device=self._on(q.device).device, pairs=pairs,
        )  # fmt: skip
        tables, everything = batch.block_tables, slice(0, len(q))
        return [Part(everything, batch.cu_query, batch.seq_lens, tables, batch.max_seq, pairs, launch, 0, None)]

    def experts(
        self, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        """As `grouped_experts`: a token's experts are summed in the order of their numbers."""
        out = torch.zeros_like(x)
        for expert in range(len(gate_up)):
            tokens, place = (chosen == expert).nonzero(as_tuple=True)
            if len(tokens):
                gate, up = fixed_linear(x[tokens], gate_up[expert], None).chunk(2, dim=-1)
                own = fixed_linear(F.silu(gate).mul_(up), down[expert], None)
                out[tokens] += own.mul_(shares[tokens, place, None].to(x.dtype))  # no token twice: no atomic sums
        return out

    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        return StrictTritonSampler(rows, vocab, device)


class StrictQuantizedKvTritonOps(StrictTritonOps, QuantizedKvTritonOps):
    """A token is rounded by itself, and taken apart the same way whoever reads it."""

    def _pairs(self, rows: int, max_query: int, max_seq: int) -> bool:
        return True
