"""The operations of a decoder on a GPU: Triton kernels, one launch each."""

from __future__ import annotations

import torch

from engines.native.kernels import INTERPRETED, fused
from engines.native.kernels.attention import paged_attention
from engines.native.kernels.attention_plan import Device, Launch, Workspace, plan
from engines.native.ops.base import Batch


class TritonOps:
    """Implements `Ops`. Holds one attention workspace per device; every call must come from the same CUDA stream.

    Inputs are contiguous, as the model makes them. Raises ValueError for tensors on a CPU, unless Triton interprets.
    """

    def __init__(self) -> None:
        self._devices: dict[torch.device, tuple[Device, Workspace]] = {}

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
        device, workspace = self._on(q.device)
        kv_heads, _, head_dim = k_cache.shape[1:]
        launch: Launch | None = batch.shared.get(f"attention {window}")
        if launch is None:
            launch = batch.shared[f"attention {window}"] = plan(
                tokens=q.shape[0], rows=batch.seq_lens.numel(), group=q.shape[1] // kv_heads, kv_heads=kv_heads,
                head_dim=head_dim, max_query=batch.max_query, max_seq=batch.max_seq, window=window, dtype=q.dtype,
                device=device,
            )  # fmt: skip
        out = torch.empty_like(q)
        paged_attention(
            q, k_cache, v_cache, out, batch.cu_query, batch.seq_lens, batch.block_tables,
            scale=scale, window=window, launch=launch, workspace=workspace,
        )  # fmt: skip
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        return fused.silu_mul(gate_up)

    def _on(self, device: torch.device) -> tuple[Device, Workspace]:
        if device not in self._devices:
            if device.type != "cuda" and not INTERPRETED:
                raise ValueError(f"Triton kernels need a CUDA device, not {device}; use the operations named 'torch'")
            self._devices[device] = Device.of(device), Workspace(device)
        return self._devices[device]
