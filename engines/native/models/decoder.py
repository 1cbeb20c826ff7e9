"""The Llama family as one decoder: embedding, layers of attention and gated MLP, norm, head.

Which switches are on comes from DecoderConfig; what runs each operation comes from Ops. Weights are merged where one
product can do the work of several: q, k, v into one, gate and up into one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engines.native.layers.embedding import Embedding
from engines.native.layers.linear import Linear
from engines.native.models.config import DecoderConfig
from engines.native.ops.base import Batch, Ops


@dataclass(slots=True)
class LayerWeights:
    """Linear layers are callables; norms are [hidden], q_norm and k_norm [head_dim]."""

    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(slots=True)
class DecoderWeights:
    embed: Embedding
    layers: list[LayerWeights]
    norm: torch.Tensor  # [hidden]
    head: Linear
    cos_sin: torch.Tensor  # [max_model_len, head_dim]


class Decoder:
    """`kv` is one pair of pools per layer, owned by the runner."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        ops: Ops,
        kv: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self.config, self.weights, self.ops, self.kv = config, weights, ops, kv
        self._scale = config.head_dim**-0.5

    def hidden(self, batch: Batch) -> torch.Tensor:
        """Run the layers, writing K and V of every token; [m, hidden] at `batch.logits_index`, normed for the head."""
        ops, eps = self.ops, self.config.norm_eps
        residual = self.weights.embed(batch.token_ids)
        layers = self.weights.layers
        x = ops.rms_norm(residual, layers[0].input_norm, eps)
        for index, layer in enumerate(layers):
            x = self.attend(index, layer, x, batch)
            if layer is layers[-1]:  # from here on, only what the head will read
                x, residual = x[batch.logits_index], residual[batch.logits_index]
                if not len(residual):  # a prefill chunk that ends nowhere: its K and V are written
                    return residual
            x, residual = ops.add_rms_norm(layer.o(x), residual, layer.post_norm, eps)
            x = layer.down(ops.silu_mul(layer.gate_up(x)))
            following = self.weights.norm if layer is layers[-1] else layers[index + 1].input_norm
            x, residual = ops.add_rms_norm(x, residual, following, eps)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[m, hidden] → [m, vocab], in the dtype of the activations."""
        return self.weights.head(hidden)

    def attend(self, index: int, layer: LayerWeights, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """x [t, hidden], normed → [t, heads × head size], before the output product; K and V are written."""
        k_cache, v_cache = self.kv[index]
        qkv = layer.qkv(x)
        q = self.ops.rope_and_cache(
            qkv, self.weights.cos_sin, batch, k_cache, v_cache, layer.q_norm, layer.k_norm, self.config.norm_eps
        )
        out = self.ops.attention(q, k_cache, v_cache, batch, self._scale, self.config.windows[index])
        return out.reshape(len(x), -1)
