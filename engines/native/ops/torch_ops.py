"""The operations in plain torch: the path of a CPU, and the reference for the kernels.

On a CPU the runner keeps each layer's pool head-major in memory ([hk, B, s, d], seen as [B, hk, s, d]), so that a row
whose blocks follow each other is read where it lies, without gathering.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engines.native.ops.base import Batch


@dataclass(slots=True)
class _RowView:
    """Where one row's queries and keys are. tokens: cache places of its keys, a run or a list (int64 [keys])."""

    first: int  # of the row's queries in the batch
    queries: int
    tokens: slice | torch.Tensor
    mask: torch.Tensor | None  # bool [queries, keys], None where all keys are seen
    causal: bool  # the mask is the plain triangle


class TorchOps:
    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.float()
        scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        return (wide * scale).to(x.dtype) * weight

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        residual = residual + x
        return self.rms_norm(residual, weight, eps), residual

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
        tokens, kv_heads, size = len(qkv), k_cache.shape[1], k_cache.shape[3]
        heads = qkv.view(tokens, -1, size)
        q_heads = heads.shape[1] - 2 * kv_heads
        if q_norm is not None and k_norm is not None:
            q = self.rms_norm(heads[:, :q_heads], q_norm, eps)
            k = self.rms_norm(heads[:, q_heads:-kv_heads], k_norm, eps)
            rotated = self._rotate(torch.cat([q, k], dim=1), cos_sin, batch)
        else:
            rotated = self._rotate(heads[:, :-kv_heads], cos_sin, batch)
        _write(k_cache, batch.slots, rotated[:, q_heads:])
        _write(v_cache, batch.slots, heads[:, -kv_heads:])
        return rotated[:, :q_heads]

    def _rotate(self, x: torch.Tensor, cos_sin: torch.Tensor, batch: Batch) -> torch.Tensor:
        """x [t, heads, d] → the same, each pair (i, i + d/2) turned by its angle; computed in float32."""
        angles = batch.shared.get("angles")
        if angles is None:
            cos, sin = cos_sin[batch.positions].float().chunk(2, dim=-1)
            angles = (torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None])
            batch.shared["angles"] = angles
        half = x.shape[-1] // 2
        swapped = torch.cat([x[..., half:], x[..., :half]], dim=-1)
        return (x * angles[0]).addcmul_(swapped, angles[1]).to(x.dtype)

    def attention(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: Batch, scale: float, window: int
    ) -> torch.Tensor:
        kv_heads, size = k_cache.shape[1], k_cache.shape[3]
        keys, values = _by_head(k_cache), _by_head(v_cache)
        grouped = q.view(len(q), kv_heads, -1, size)
        views = batch.shared.get(f"rows {window}")
        if views is None:
            views = batch.shared[f"rows {window}"] = _row_views(batch, k_cache.shape[2], window)
        out = torch.empty_like(grouped)
        for view in views:
            span = slice(view.first, view.first + view.queries)
            # [kv heads, group, queries, d] against [kv heads, group (one copy), keys, d]
            out[span] = F.scaled_dot_product_attention(
                grouped[span].permute(1, 2, 0, 3),
                keys[:, None, view.tokens].expand(-1, grouped.shape[2], -1, -1),
                values[:, None, view.tokens].expand(-1, grouped.shape[2], -1, -1),
                attn_mask=view.mask,
                is_causal=view.causal,
                scale=scale,
            ).permute(2, 0, 1, 3)
        return out.view(q.shape)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up


def _by_head(cache: torch.Tensor) -> torch.Tensor:
    """[B, hk, s, d] → [hk, B × s, d]: a view of a head-major pool, a copy of any other."""
    return cache.transpose(0, 1).flatten(1, 2)


def _write(cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor) -> None:
    """x [t, hk, d] → cache [B, hk, s, d] at `slots` [t]."""
    by_head = cache.transpose(0, 1)
    if by_head.is_contiguous():
        by_head.view(cache.shape[1], -1, cache.shape[3]).index_copy_(1, slots, x.transpose(0, 1).to(cache.dtype))
    else:
        size = cache.shape[2]
        cache[slots // size, :, slots % size] = x.to(cache.dtype)


def _row_views(batch: Batch, block_size: int, window: int) -> list[_RowView]:
    starts, lengths = batch.cu_query.tolist(), batch.seq_lens.tolist()
    tables = batch.block_tables.cpu().numpy()
    views = []
    for row, (length, table) in enumerate(zip(lengths, tables, strict=True)):
        queries = starts[row + 1] - starts[row]
        if queries == 0:
            continue
        oldest = max(0, length - queries + 1 - window) if window else 0  # key that the first query still sees
        used = table[: -(-length // block_size)]
        tokens: slice | torch.Tensor
        if (used[1:] - used[:-1] == 1).all():
            tokens = slice(int(used[0]) * block_size + oldest, int(used[0]) * block_size + length)
        else:
            places = torch.arange(oldest, length, device=batch.slots.device)
            blocks = batch.block_tables[row].long()
            tokens = blocks[places // block_size] * block_size + places % block_size
        views.append(_RowView(starts[row], queries, tokens, *_mask(queries, length, oldest, window, batch)))
    return views


def _mask(queries: int, length: int, oldest: int, window: int, batch: Batch) -> tuple[torch.Tensor | None, bool]:
    if queries == 1:
        return None, False
    if queries == length and (not window or length <= window):
        return None, True
    at = torch.arange(length - queries, length, device=batch.slots.device)[:, None]
    key = torch.arange(oldest, length, device=batch.slots.device)[None]
    seen = key <= at
    return (seen & (key > at - window) if window else seen), False
