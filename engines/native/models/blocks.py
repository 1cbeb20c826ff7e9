"""The layers of a decoder, as callables chosen when a model is loaded: how attention is made, what stands between the
norms, and in which order. Weights are merged where one product can do the work of several.

A block takes x, the normed input, and the residual stream beside it, and gives both for the next block. It works in two
halves, `attend` and `finish`, because after the last layer's keys and values are written only some tokens go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch

from engines.native.layers.linear import Linear
from engines.native.layers.router import Router
from engines.native.models.config import DecoderConfig, Latent
from engines.native.ops.base import AddNorm, Batch, Ops
from engines.native.quantized_kv import Pool

_T = TypeVar("_T")
Pools = tuple[Pool, Pool]
"""One layer's K and V, [B, hk, s, d]; for latent attention twice the same tensor."""


@dataclass(slots=True)
class LatentWeights:
    """q: to heads × (nope_dim + rope_dim), from hidden, or from what q_a makes of it, normed by q_norm [q_rank].
    kv_a: hidden → kv_rank + rope_dim; kv_norm [kv_rank]. key [heads, nope_dim, kv_rank] and value [heads, kv_rank,
    value_dim]: the two halves of kv_b, per head."""

    q_a: Linear | None
    q_norm: torch.Tensor | None
    q: Linear
    kv_a: Linear
    kv_norm: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


@dataclass(slots=True)
class MoeWeights:
    """gate_up [experts, 2 × ffn, hidden], down [experts, hidden, ffn]. shared: what every token passes, times the
    sigmoid of shared_gate where there is one."""

    router: Router
    gate_up: torch.Tensor
    down: torch.Tensor
    shared_gate_up: Linear | None = None
    shared_down: Linear | None = None
    shared_gate: Linear | None = None


@dataclass(slots=True)
class LayerWeights:
    """Linear layers are callables; norms are [hidden], q_norm and k_norm [head_dim]. What an architecture does not have
    is None: latent attention has no qkv, a mixture no gate_up and down, a parallel block no post_norm."""

    input_norm: torch.Tensor
    qkv: Linear | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: Linear
    post_norm: torch.Tensor | None
    gate_up: Linear | None
    down: Linear | None
    after_attention: torch.Tensor | None = None
    after_mlp: torch.Tensor | None = None
    latent: LatentWeights | None = field(default=None)
    moe: MoeWeights | None = field(default=None)


class Block(Protocol):
    def attend(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """x [t, hidden], normed → [t, heads × value size], before the output product; K and V are written."""
        ...

    def pick(
        self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What `finish` needs of the tokens `index`, int64 [m], of its three arguments."""
        ...

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """From what attention gave to (the next block's normed input, residual); `residual` may be written."""
        ...


def make_block(
    config: DecoderConfig,
    index: int,
    layer: LayerWeights,
    following: torch.Tensor,
    cos_sin: torch.Tensor,
    ops: Ops,
    pools: Pools,
    reader: Linear | None = None,
) -> Block:
    """following: [hidden], the norm that comes after the layer; reader: the product that alone reads it, if known.
    cos_sin: of this layer, as `Ops.rope_and_cache` has it."""
    attention = _attention(config, index, layer, cos_sin, ops, pools)
    if config.form == "pre":
        made = PreNormBlock(config, layer, following, ops, attention, _mlp(config, layer, ops, ops.summands))
        made.norm_for(None if layer.moe else layer.gate_up, reader)
        return made
    mlp = _mlp(config, layer, ops, ops.linear)
    if config.form == "parallel":
        return ParallelBlock(config, layer, following, ops, attention, mlp)
    return SandwichBlock(config, layer, following, ops, attention, mlp)


class WatchedBlock:
    """Another block whose residual stream is shown as it leaves."""

    def __init__(self, block: Block, seen: Callable[[torch.Tensor], None]) -> None:
        self.attend, self.pick, self._finish, self._seen = block.attend, block.pick, block.finish, seen

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self._finish(out, x, residual)
        self._seen(residual)
        return x, residual


class FedBlock(WatchedBlock):
    """One that is seen too, after which another model's residual stream goes on in place of its own."""

    def __init__(self, block: Block, seen: Callable[[torch.Tensor], None], given: torch.Tensor, norm: Linear) -> None:
        """given: [tokens, hidden], of any dtype and device. norm: what the next block has its input from."""
        super().__init__(block, seen)
        self._given, self._norm = given, norm

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        _, residual = super().finish(out, x, residual)
        given = self._given.to(residual, copy=True)  # the next block may write over it
        return self._norm(given), given


Seen = Callable[[torch.Tensor, torch.Tensor], None]
"""Called with slots, int64 [t], and what the tokens there have come to, [t, hidden], good until it returns."""


class KeptBlock:
    """Another block whose residual stream is seen as it leaves, with the slots of its tokens."""

    def __init__(self, block: Block, seen: Seen) -> None:
        self.pick, self._attend, self._finish, self._seen = block.pick, block.attend, block.finish, seen

    def attend(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        self._slots = batch.slots
        return self._attend(x, batch)

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self._finish(out, x, residual)
        self._seen(self._slots, residual)
        return x, residual


class KeptLastBlock:
    """The last block, whose normed output is seen, of the tokens that go on."""

    def __init__(self, block: Block, seen: Seen) -> None:
        self._block, self._seen = block, seen

    def attend(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        self._slots = batch.slots
        return self._block.attend(x, batch)

    def pick(
        self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        self._slots = self._slots[index]
        return self._block.pick(out, x, residual, index)

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self._block.finish(out, x, residual)
        self._seen(self._slots, x)
        return x, residual


class PreNormBlock:
    """Llama's: a norm before attention, one before the MLP."""

    def __init__(
        self,
        config: DecoderConfig,
        layer: LayerWeights,
        following: torch.Tensor,
        ops: Ops,
        attend: Callable[[torch.Tensor, Batch], torch.Tensor],
        mlp: Linear,
    ) -> None:
        self.attend, self._mlp = attend, mlp
        self._ops, self._eps, self._o = ops, config.norm_eps, layer.o
        self._post_norm, self._following = _given(layer.post_norm), following
        self._norm_for_mlp: AddNorm = ops.add_rms_norm
        self._norm_for_next: AddNorm = ops.add_rms_norm

    def norm_for(self, mlp: Linear | None, following: Linear | None) -> None:
        """Which products alone read the norm before the MLP and the one behind it."""
        self._norm_for_mlp = self._ops.add_rms_norm_for(mlp)
        self._norm_for_next = self._ops.add_rms_norm_for(following)

    def pick(
        self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return out[index], x, residual[index]  # x is not read again

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ops, eps = self._ops, self._eps
        x, residual = self._norm_for_mlp(ops.summands(self._o, out), residual, self._post_norm, eps)
        return self._norm_for_next(self._mlp(x), residual, self._following, eps)


class SandwichBlock(PreNormBlock):
    """Gemma 2's: norms also after attention and after the MLP, before what they give is added."""

    def __init__(
        self,
        config: DecoderConfig,
        layer: LayerWeights,
        following: torch.Tensor,
        ops: Ops,
        attend: Callable[[torch.Tensor, Batch], torch.Tensor],
        mlp: Linear,
    ) -> None:
        super().__init__(config, layer, following, ops, attend, mlp)
        self._after_attention, self._after_mlp = _given(layer.after_attention), _given(layer.after_mlp)

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ops, eps = self._ops, self._eps
        x = ops.rms_norm(ops.linear(self._o, out), self._after_attention, eps)
        x, residual = ops.add_rms_norm(x, residual, self._post_norm, eps)
        x = ops.rms_norm(self._mlp(x), self._after_mlp, eps)
        return ops.add_rms_norm(x, residual, self._following, eps)


class ParallelBlock:
    """Command-R's: attention and MLP read the same normed input, and both are added."""

    def __init__(
        self,
        config: DecoderConfig,
        layer: LayerWeights,
        following: torch.Tensor,
        ops: Ops,
        attend: Callable[[torch.Tensor, Batch], torch.Tensor],
        mlp: Linear,
    ) -> None:
        self.attend, self._mlp = attend, mlp
        self._ops, self._eps, self._o, self._following = ops, config.norm_eps, layer.o, following

    def pick(
        self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return out[index], x[index], residual[index]

    def finish(self, out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = self._ops.linear(self._o, out).add_(self._mlp(x))
        return self._ops.add_rms_norm(both, residual, self._following, self._eps)


def _attention(
    config: DecoderConfig, index: int, layer: LayerWeights, cos_sin: torch.Tensor, ops: Ops, pools: Pools
) -> Callable[[torch.Tensor, Batch], torch.Tensor]:
    if config.latent is not None:
        if not isinstance(pools[0], torch.Tensor):
            raise ValueError("latent attention has no KV cache in 8 bits; set kv_cache_dtype to 'auto'")
        return LatentAttention(config, config.latent, _given(layer.latent), cos_sin, ops, pools[0])
    made = Attention(config, index, layer, cos_sin, ops, pools)
    return made.capped if config.attention_softcap else made.plain


class Attention:
    """Queries, keys and values of whole heads."""

    def __init__(
        self, config: DecoderConfig, index: int, layer: LayerWeights, cos_sin: torch.Tensor, ops: Ops, pools: Pools
    ) -> None:
        self._qkv, self._q_norm, self._k_norm = _given(layer.qkv), layer.q_norm, layer.k_norm
        self._cos_sin, self._ops, self._pools, self._eps = cos_sin, ops, pools, config.norm_eps
        self._scale, self._window, self._softcap = config.scale, config.windows[index], config.attention_softcap

    def plain(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        out = self._ops.attention(self._queries(x, batch), *self._pools, batch, self._scale, self._window)
        return out.reshape(len(x), -1)

    def capped(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        out = self._ops.capped_attention(
            self._queries(x, batch), *self._pools, batch, self._scale, self._window, self._softcap
        )
        return out.reshape(len(x), -1)

    def _queries(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self._ops.rope_and_cache(
            self._ops.summands(self._qkv, x), self._cos_sin, batch, *self._pools, self._q_norm, self._k_norm, self._eps
        )


class LatentAttention:
    """Keys and values stay compressed: a query is taken into their space, and what it gathers there is unfolded."""

    def __init__(
        self,
        config: DecoderConfig,
        latent: Latent,
        weights: LatentWeights,
        cos_sin: torch.Tensor,
        ops: Ops,
        pool: torch.Tensor,
    ) -> None:
        self._shape, self._weights, self._cos_sin, self._ops, self._pool = latent, weights, cos_sin, ops, pool
        self._heads, self._scale = config.heads, config.scale
        self._query = self._plain_query if weights.q_a is None else self._compressed_query

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        shape, weights, ops = self._shape, self._weights, self._ops
        q = self._query(x).view(len(x), self._heads, shape.nope_dim + shape.rope_dim)
        inside = torch.bmm(q[..., : shape.nope_dim].transpose(0, 1), weights.key).transpose(0, 1)
        compressed = weights.kv_a(x)
        key = ops.rms_norm(compressed[:, : shape.kv_rank].contiguous(), weights.kv_norm, shape.norm_eps)
        q = ops.latent_rope_and_cache(
            torch.cat([inside, q[..., shape.nope_dim :]], -1),
            torch.cat([key, compressed[:, shape.kv_rank :]], -1),
            self._cos_sin,
            batch,
            self._pool,
        )
        out = ops.attention(q, self._pool, self._pool, batch, self._scale, 0)[..., : shape.kv_rank]
        return torch.bmm(out.transpose(0, 1), weights.value).transpose(0, 1).reshape(len(x), -1)

    def _plain_query(self, x: torch.Tensor) -> torch.Tensor:
        return self._weights.q(x)

    def _compressed_query(self, x: torch.Tensor) -> torch.Tensor:
        weights = self._weights
        small = _given(weights.q_a)(x)
        return weights.q(self._ops.rms_norm(small, _given(weights.q_norm), self._shape.norm_eps))


Product = Callable[[Linear, torch.Tensor], torch.Tensor]
"""A layer and its input → its output, as `Ops.linear` or `Ops.summands` gives it."""


def _mlp(config: DecoderConfig, layer: LayerWeights, ops: Ops, product: Product) -> Linear:
    """product: how what comes out last is made."""
    gated: Product = {"silu": ops.silu_gated, "gelu_tanh": ops.gelu_tanh_gated}[config.activation]
    if layer.moe is None:
        down = _given(layer.down)
        if config.activation == "silu":
            gated = ops.silu_gated_for(down)
        return GatedMlp(_given(layer.gate_up), down, gated, product)
    experts = Experts(layer.moe, ops)
    if layer.moe.shared_gate_up is None:
        return experts
    shared = GatedMlp(layer.moe.shared_gate_up, _given(layer.moe.shared_down), gated, ops.linear)
    return WithShared(experts, shared, layer.moe.shared_gate)


class GatedMlp:
    def __init__(self, gate_up: Linear, down: Linear, gated: Product, product: Product) -> None:
        self._gate_up, self._down, self._gated, self._product = gate_up, down, gated, product

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(self._down, self._gated(self._gate_up, x))


class Experts:
    def __init__(self, weights: MoeWeights, ops: Ops) -> None:
        self._weights, self._ops = weights, ops

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        shares, experts = self._weights.router(x)
        return self._ops.experts(x, shares, experts, self._weights.gate_up, self._weights.down)


class WithShared:
    """Routed experts and one that every token passes."""

    def __init__(self, experts: Linear, shared: Linear, gate: Linear | None) -> None:
        self._experts = experts
        self._shared = shared if gate is None else lambda x: shared(x).mul_(gate(x).sigmoid())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._experts(x).add_(self._shared(x))


def _given(value: _T | None) -> _T:
    """Raises ValueError: the loader left out what the configuration asks for."""
    if value is None:
        raise ValueError("the configuration asks for a weight that was not loaded")
    return value
