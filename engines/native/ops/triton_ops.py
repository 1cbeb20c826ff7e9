"""The operations of a decoder on a GPU: Triton kernels, one launch each."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from engines.native.decode_graph import DecodeGraphs
from engines.native.kernels import INTERPRETED, fused
from engines.native.kernels.attention import paged_attention
from engines.native.kernels.attention_plan import Device, Launch, Workspace, plan
from engines.native.kernels.linear import gated_linear, linear, ours
from engines.native.layers.linear import DenseLinear, Linear
from engines.native.ops.base import Batch
from engines.native.ops.mixture import grouped_experts
from engines.native.sample.triton_sampler import TritonSampler

if TYPE_CHECKING:
    from engines.native.models.decoder import Decoder
    from engines.native.sample.sampler import Sampler
    from engines.native.state import Rows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Part:
    """One attention launch. tokens: its queries in the pass; cu_query counts from the first of them."""

    tokens: slice
    cu_query: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    launch: Launch


class TritonOps:
    """Implements `Ops`. Holds one attention workspace per device; every call must come from the same CUDA stream.

    Inputs are contiguous, as the model makes them. Raises ValueError for tensors on a CPU, unless Triton interprets.
    """

    def __init__(self) -> None:
        self._devices: dict[torch.device, tuple[Device, Workspace]] = {}

    def linear(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, DenseLinear) and self._few(x, layer):
            return linear(x, layer.weight, layer.bias, splits=False)
        return layer(x)

    def summands(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, DenseLinear) and self._few(x, layer):
            return linear(x, layer.weight, layer.bias, splits=True)
        return layer(x)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return fused.rms_norm(x, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return fused.add_rms_norm(x, residual, weight, eps), residual

    def rope_and_cache(
        self,
        qkv: torch.Tensor,
        cos_sin: torch.Tensor,
        batch: Batch,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
    ) -> torch.Tensor:
        return fused.rope_and_cache(
            qkv, cos_sin, batch.positions, batch.slots, k_cache, v_cache, q_norm, k_norm, eps
        )  # fmt: skip

    def attention(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: Batch, scale: float, window: int
    ) -> torch.Tensor:
        return self.capped_attention(q, k_cache, v_cache, batch, scale, window, 0.0)

    def capped_attention(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        batch: Batch,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        _, workspace = self._on(q.device)
        parts: list[_Part] | None = batch.shared.get(f"attention {window}")
        if parts is None:
            parts = batch.shared[f"attention {window}"] = self._parts(q, k_cache, batch, window)
        out = torch.empty_like(q)
        for part in parts:
            paged_attention(
                q[part.tokens], k_cache, v_cache, out[part.tokens], part.cu_query, part.seq_lens, part.block_tables,
                scale=scale, window=window, softcap=softcap, launch=part.launch, workspace=workspace,
            )  # fmt: skip
        return out

    def _parts(self, q: torch.Tensor, k_cache: torch.Tensor, batch: Batch, window: int) -> list[_Part]:
        """Decodes and chunks of a mixed step apart: a tile for a chunk is mostly empty for a row with one query."""
        device, _ = self._on(q.device)
        kv_heads, _, head_dim = k_cache.shape[1:]

        def part(tokens: slice, rows: slice, cu_query: torch.Tensor, max_query: int) -> _Part:
            seq_lens, count = batch.seq_lens[rows], len(q[tokens])
            launch = plan(
                tokens=count, rows=len(seq_lens), group=q.shape[1] // kv_heads, kv_heads=kv_heads, head_dim=head_dim,
                max_query=max_query, max_seq=batch.max_seq, window=window, dtype=q.dtype, device=device,
            )  # fmt: skip
            return _Part(tokens, cu_query, seq_lens, batch.block_tables[rows], launch)

        at = batch.decodes
        if not 0 < at < len(batch.seq_lens):
            return [part(slice(None), slice(None), batch.cu_query, batch.max_query)]
        return [
            part(slice(at), slice(at), batch.cu_query[: at + 1], 1),
            part(slice(at, None), slice(at, None), batch.cu_query[at:] - at, batch.max_query),
        ]

    def latent_rope_and_cache(
        self, q: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor, batch: Batch, cache: torch.Tensor
    ) -> torch.Tensor:
        raise ValueError("latent attention has no kernel yet: serve this model with device 'cpu'")

    def silu_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        if isinstance(gate_up, DenseLinear) and self._few(x, gate_up, gated=True):
            return gated_linear(x, gate_up.weight, gate_up.bias)
        return fused.silu_mul(gate_up(x))

    def gelu_tanh_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up(x).chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def experts(
        self, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        return grouped_experts(x, shares, chosen, gate_up, down)

    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        return TritonSampler(rows, vocab, device)

    def graphs(self, model: Decoder, rows: Rows, sampler: Sampler) -> DecodeGraphs | None:
        if rows.device.type != "cuda" or not isinstance(sampler, TritonSampler):
            return None
        if model.config.moe is not None:
            log.info("decode steps run without graphs: which experts a step needs is read back from the device")
            return None
        return DecodeGraphs(model, rows, sampler)

    def _few(self, x: torch.Tensor, layer: DenseLinear, gated: bool = False) -> bool:
        """Whether x's rows are few enough for our kernel, on a device it was measured on, in a dtype of its tiles."""
        outputs = len(layer.weight) // (2 if gated else 1)
        if not ours(rows=len(x), outputs=outputs, gated=gated) or x.dtype not in (torch.bfloat16, torch.float16):
            return False
        return self._on(x.device)[0].capability[0] == 9

    def _on(self, device: torch.device) -> tuple[Device, Workspace]:
        if device not in self._devices:
            if device.type != "cuda" and not INTERPRETED:
                raise ValueError(f"Triton kernels need a CUDA device, not {device}; use the operations named 'torch'")
            self._devices[device] = Device.of(device), Workspace(device)
        return self._devices[device]
