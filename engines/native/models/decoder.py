"""One decoder for every architecture: embedding, blocks, norm, head.

Which blocks comes from DecoderConfig (`engines.native.models.blocks`); what runs each operation comes from Ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from engines.native.layers.embedding import Embedding
from engines.native.layers.linear import Linear
from engines.native.models.blocks import (
    Block,
    FedBlock,
    KeptBlock,
    KeptLastBlock,
    LayerWeights,
    Pools,
    WatchedBlock,
    make_block,
)
from engines.native.models.config import DecoderConfig
from engines.native.models.features import Feature, Features
from engines.native.offload import OffloadedLayer
from engines.native.ops.base import Batch, Ops

__all__ = ["Decoder", "DecoderWeights", "LayerWeights"]


@dataclass(slots=True)
class DecoderWeights:
    embed: Embedding
    layers: list[LayerWeights | OffloadedLayer]
    norm: torch.Tensor  # [hidden]
    head: Linear
    cos_sin: list[torch.Tensor]  # per layer, [max_model_len, turned head size]; layers may share one
    quantization: dict[str, Any] = field(default_factory=dict)  # facts of `layers.quantized.Served`


class Decoder:
    """`kv` is one pair of pools per layer, owned by the runner."""

    def __init__(self, config: DecoderConfig, weights: DecoderWeights, ops: Ops, kv: Sequence[Pools]) -> None:
        self.config, self.weights, self.ops, self.kv = config, weights, ops, list(kv)
        following = [*(layer.input_norm for layer in weights.layers[1:]), weights.norm]
        self._blocks: list[Block] = []
        readers = [*(None if isinstance(layer, OffloadedLayer) else layer.qkv for layer in weights.layers[1:]), None]
        for index, (layer, after) in enumerate(zip(weights.layers, following, strict=True)):
            make = partial(
                make_block, config, index, following=after, cos_sin=weights.cos_sin[index], ops=ops, pools=kv[index],
                reader=readers[index],
            )  # fmt: skip
            self._blocks.append(layer.block(make) if isinstance(layer, OffloadedLayer) else make(layer))
        self._made = self._blocks

    def watch(self, seen: Callable[[torch.Tensor], None], given: Sequence[torch.Tensor] = ()) -> None:
        """From now on show the residual stream after each layer, [tokens, hidden]; after the last one, of the tokens
        that go on. To compare models; the tensors are written over afterwards. given: another model's streams after
        each layer but the last, which then go on in place of this one's."""
        *blocks, last = self._made
        self._blocks = [WatchedBlock(block, seen) for block in self._made]
        if given:
            norms = [layer.input_norm for layer in self.weights.layers[1:]]
            fed = [
                FedBlock(block, seen, stream, partial(self.ops.rms_norm, weight=norm, eps=self.config.norm_eps))
                for block, stream, norm in zip(blocks, given, norms, strict=True)
            ]
            self._blocks = [*fed, WatchedBlock(last, seen)]

    def keep(self, layers: Sequence[int], size: int, feature: Feature) -> torch.Tensor:
        """From now on each pass keeps `feature` of its tokens, [t, size], where their keys and values are: in one more
        pool of `kv`, [B, 1, s, size], which moves with them. It is made of the residual streams before `layers`, in
        rising order, side by side; before the one past the last stands the normed output, of tokens that draw alone.
        Raises ConfigError for a layer that there is not, and where a stream is not what other engines call so.
        """
        features = Features(self.config, layers, size, feature, self.kv[0][0])
        self.kv.append((features.pool, features.pool))
        for place, layer in enumerate(layers):
            kind = KeptLastBlock if layer == self.config.layers else KeptBlock
            self._made[layer - 1] = kind(self._made[layer - 1], partial(features.see, place))
        self._blocks = self._made
        return features.pool

    @property
    def offloaded(self) -> bool:
        """Whether some weights are brought in the course of a step."""
        return any(isinstance(layer, OffloadedLayer) for layer in self.weights.layers)

    def hidden(self, batch: Batch) -> torch.Tensor:
        """Run the layers, writing K and V of every token; [m, hidden] at `batch.logits_index`, normed for the head."""
        residual = self.weights.embed(batch.token_ids)
        x = self.ops.rms_norm(residual, self.weights.layers[0].input_norm, self.config.norm_eps)
        *blocks, last = self._blocks
        for block in blocks:
            x, residual = block.finish(block.attend(x, batch), x, residual)
        out = last.attend(x, batch)
        if batch.logits_index is not None:
            out, x, residual = last.pick(out, x, residual, batch.logits_index)
        if not len(residual):  # a prefill chunk that ends nowhere: its K and V are written
            return residual
        return last.finish(out, x, residual)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[m, hidden] → [m, vocab], in the dtype of the activations."""
        return self.ops.linear(self.weights.head, hidden)
