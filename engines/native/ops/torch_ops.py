"""The operations in plain torch: the path of a CPU, and the reference for the kernels.

On a CPU a decode step is hundreds of small operations, and starting one costs more than its work: so each is made of
as few torch calls as possible. The runner keeps each layer's pool head-major in memory ([hk, B, s, d], seen as
[B, hk, s, d]), so that a row whose blocks follow each other is read where it lies, without gathering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from engines.native.layers.linear import Linear
from engines.native.ops.base import AddNorm, Batch
from engines.native.ops.invariant_attention import attend, attend_together
from engines.native.ops.mixture import grouped_experts
from engines.native.ops.row_views import DecodeGroup, RowView, decode_group, row_views
from engines.native.quantized_kv import Pool
from engines.native.sample.sampler import Sampler

if TYPE_CHECKING:
    from engines.native.models.decoder import Decoder
    from engines.native.state import Rows


class TorchOps:
    trees = False
    """`attention` takes them. But a token on a fork is summed in another place than once it is part of the answer, and
    without forks an answer has the same bits with guesses and without."""

    def __init__(self) -> None:
        # Derived tensors that live as long as the model: by id, with the original, which keeps the id from reuse.
        self._doubled: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._flat: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def linear(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        return layer(x)

    def summands(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        return layer(x)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        if x.dtype == torch.float32:
            # [x, −x] has mean 0 and variance mean(x²): layer_norm of it is one fused pass where rms_norm takes six.
            size = x.shape[-1]
            both = F.layer_norm(torch.cat([x, -x], -1), (2 * size,), self._double(weight), None, eps)
            return both[..., :size]
        wide = x.float()
        scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        if weight.dtype != x.dtype:  # a weight that needs float32 is multiplied there
            return (wide * scale * weight).to(x.dtype)
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
        k_cache: Pool,
        v_cache: Pool,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
    ) -> torch.Tensor:
        tokens, kv_heads, size = len(qkv), k_cache.shape[1], k_cache.shape[3]
        heads = qkv.view(tokens, -1, size)
        q_heads = heads.shape[1] - 2 * kv_heads
        turned = heads[:, :-kv_heads]
        if q_norm is not None and k_norm is not None:
            q = self.rms_norm(turned[:, :q_heads], q_norm, eps)
            turned = torch.cat([q, self.rms_norm(turned[:, q_heads:], k_norm, eps)], dim=1)
        turned = _rotate(turned, cos_sin, batch)
        self._write(k_cache, batch.slots, turned[:, q_heads:])
        self._write(v_cache, batch.slots, heads[:, -kv_heads:])
        return turned[:, :q_heads]

    def attention(
        self, q: torch.Tensor, k_cache: Pool, v_cache: Pool, batch: Batch, scale: float, window: int
    ) -> torch.Tensor:
        return self._attend(q, k_cache, v_cache, batch, window, scale, 0.0)

    def capped_attention(
        self,
        q: torch.Tensor,
        k_cache: Pool,
        v_cache: Pool,
        batch: Batch,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        return self._attend(q, k_cache, v_cache, batch, window, scale, softcap)

    def _attend(
        self, q: torch.Tensor, k_cache: Pool, v_cache: Pool, batch: Batch, window: int, scale: float, softcap: float
    ) -> torch.Tensor:
        views = _views(batch, k_cache, q.shape[1], window)
        wide = torch.promote_types(q.dtype, torch.float32)
        if isinstance(views, DecodeGroup):
            keys, values = self._pages(k_cache, views).to(wide), self._pages(v_cache, views).to(wide)
            return attend_together(q, keys, values, views, scale, softcap)
        found = []
        for view in views:
            keys, values = (self._rows(pool, view.places)[0].to(wide) for pool in (k_cache, v_cache))
            found += [attend(q, keys, values, piece, scale, softcap) for piece in view.pieces]
        return found[0] if len(found) == 1 else torch.cat(found)

    def latent_rope_and_cache(
        self, q: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor, batch: Batch, cache: torch.Tensor
    ) -> torch.Tensor:
        size = cos_sin.shape[1]
        both = torch.cat([q, key[:, None]], dim=1)
        both[..., -size:] = _rotate(both[..., -size:], cos_sin, batch)
        self._write(cache, batch.slots, both[:, -1:])
        return both[:, :-1]

    def add_rms_norm_for(self, layer: Linear | None) -> AddNorm:
        return self.add_rms_norm

    def silu_gated_for(self, down: Linear) -> Callable[[Linear, torch.Tensor], torch.Tensor]:
        return self.silu_gated

    def silu_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up(x).chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    def gelu_tanh_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up(x).chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def experts(
        self, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        return grouped_experts(x, shares, chosen, gate_up, down)

    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        return Sampler(rows, vocab, device)

    def graphs(self, model: Decoder, rows: Rows, sampler: Sampler) -> None:
        """None: these operations read lengths on the host."""

    def _double(self, weight: torch.Tensor) -> torch.Tensor:
        found = self._doubled.get(id(weight))
        if found is None:
            found = self._doubled[id(weight)] = (weight, torch.cat([weight, weight]))
        return found[1]

    def _by_head(self, cache: torch.Tensor) -> torch.Tensor:
        """[B, hk, s, d] → [1, hk, B × s, d]: a view of a head-major pool, a copy of any other."""
        found = self._flat.get(id(cache))
        if found is None:
            flat = cache.transpose(0, 1).flatten(1, 2)[None]
            if flat.data_ptr() != cache.data_ptr():
                return flat
            found = self._flat[id(cache)] = (cache, flat)
        return found[1]

    # How a pool is read and written; operations for pools of another kind have their own three.

    def _rows(self, cache: Any, places: slice | torch.Tensor) -> torch.Tensor:
        """What stands at `places` of a pool, a run of them or int64 [keys] → [1, hk, keys, d]."""
        return self._by_head(cache)[:, :, places]

    def _pages(self, cache: Any, group: DecodeGroup) -> torch.Tensor:
        """The keys of a group's rows → [hk × rows, keys, d]."""
        return group.gathered(self._by_head(cache)[0], cache.shape[2])

    def _write(self, cache: Any, slots: torch.Tensor, x: torch.Tensor) -> None:
        """x [t, hk, d] → cache [B, hk, s, d] at `slots` [t]."""
        x = x.to(cache.dtype)
        if cache.stride(1) > cache.stride(0):  # head-major
            self._by_head(cache)[0].index_copy_(1, slots, x.transpose(0, 1))
        else:
            size = cache.shape[2]
            cache[slots // size, :, slots % size] = x


def _views(batch: Batch, k_cache: Pool, heads: int, window: int) -> DecodeGroup | list[RowView]:
    views: DecodeGroup | list[RowView] | None = batch.shared.get(f"rows {window}")
    if views is None:
        views = decode_group(batch, k_cache, window) or row_views(batch, k_cache.shape[2], heads, window)
        batch.shared[f"rows {window}"] = views
    return views


def _rotate(x: torch.Tensor, cos_sin: torch.Tensor, batch: Batch) -> torch.Tensor:
    """x [t, heads, d] → the same, each pair (i, i + d/2) turned by its angle; computed in float32."""
    key = f"angles {id(cos_sin)}"  # the table lives as long as the model
    angles = batch.shared.get(key)
    if angles is None:
        cos, sin = cos_sin[batch.positions].float().chunk(2, dim=-1)
        angles = batch.shared[key] = (torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None])
    swapped = x.roll(x.shape[-1] // 2, -1)
    return (x * angles[0]).addcmul_(swapped, angles[1]).to(x.dtype)
