"""Evens out activations before int8: a channel that runs hot is divided by a factor, its weights multiplied by it.

SmoothQuant (https://arxiv.org/abs/2211.10438), with every division folded into what makes the channel: the norm
before q, k, v and before gate, up; the rows of v before o; the rows of up before down. Nothing is added to a pass.
The ranges come from one pass over a few hundred tokens, layer by layer while the weights are loaded. Dense layers only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engines.native.layers.embedding import Embedding
from engines.native.layers.linear import DenseLinear
from engines.native.models.blocks import LayerWeights, make_block
from engines.native.models.config import DecoderConfig
from engines.native.ops.base import Batch
from engines.native.ops.torch_ops import TorchOps

STRENGTH = 0.5
"""Share of a channel's range that moves into the weights; 0.65 was no better on SmolLM2, 0.8 far worse."""
BLOCK = 16


@dataclass(slots=True)
class RawLayer:
    """One layer's merged tensors in float32, [out, in]; biases may be None. Written over by `Smoother`."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    post_norm: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None
    after_attention: torch.Tensor | None = None
    after_mlp: torch.Tensor | None = None


class _Observed:
    """A linear layer that remembers the greatest absolute value of each input channel, [in]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._linear = DenseLinear(weight, bias)
        self.greatest = torch.zeros(weight.shape[1])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.greatest = torch.maximum(self.greatest, x.abs().amax(dim=0))
        return self._linear(x)


class Smoother:
    """Takes the layers in order; holds the calibration tokens' hidden state between them."""

    def __init__(self, config: DecoderConfig, embed: Embedding, cos_sin: list[torch.Tensor], ids: torch.Tensor) -> None:
        """embed: in float32; cos_sin: as in DecoderWeights; ids: int64, tokens to run, cut to its length."""
        self._config, self._cos_sin, self._ops = config, cos_sin, TorchOps()
        ids = ids[: len(cos_sin[0])]
        tokens = len(ids)
        blocks = -(-tokens // BLOCK)
        pool = torch.zeros(config.kv_heads, blocks, BLOCK, config.head_dim).transpose(0, 1)
        # One pool serves all layers: each writes every place before it reads.
        self._pools = pool, pool.clone(memory_format=torch.preserve_format)
        positions = torch.arange(tokens)
        self._batch = Batch(
            token_ids=ids,
            positions=positions,
            slots=positions,
            cu_query=torch.tensor([0, tokens], dtype=torch.int32),
            seq_lens=torch.tensor([tokens], dtype=torch.int32),
            block_tables=torch.arange(blocks, dtype=torch.int32)[None],
            logits_index=positions[-1:],
            max_query=tokens,
            max_seq=tokens,
        )
        self._hidden = embed(ids)
        self._index = 0

    def layer(self, raw: RawLayer) -> None:
        """Run the tokens through the next layer, then move its ranges into its weights."""
        qkv, o = _Observed(raw.qkv, raw.qkv_bias), _Observed(raw.o, raw.o_bias)
        gate_up, down = _Observed(raw.gate_up, raw.gate_up_bias), _Observed(raw.down, raw.down_bias)
        layer = LayerWeights(
            raw.input_norm, qkv, raw.q_norm, raw.k_norm, o, raw.post_norm, gate_up, down,
            raw.after_attention, raw.after_mlp,
        )  # fmt: skip
        following = torch.ones(self._config.hidden)  # what comes after the layer is not looked at
        block = make_block(
            self._config, self._index, layer, following, self._cos_sin[self._index], self._ops, self._pools
        )
        x = self._ops.rms_norm(self._hidden, raw.input_norm, self._config.norm_eps)
        _, self._hidden = block.finish(block.attend(x, self._batch), x, self._hidden)
        self._index += 1
        if raw.post_norm is None:  # one norm makes what both read
            _fold_norm(raw.input_norm, [raw.qkv, raw.gate_up], torch.maximum(qkv.greatest, gate_up.greatest))
        else:
            _fold_norm(raw.input_norm, [raw.qkv], qkv.greatest)
            _fold_norm(raw.post_norm, [raw.gate_up], gate_up.greatest)
        self._fold_value(raw, o.greatest)
        factors = _factors(down.greatest, raw.down.abs().amax(dim=0))
        _divide_rows(raw.gate_up, raw.gate_up_bias, factors)
        raw.down.mul_(factors)

    def head(self, norm: torch.Tensor, head: torch.Tensor) -> None:
        """After the last layer: the final norm [hidden] and the head [vocab, hidden], both written over."""
        x = self._ops.rms_norm(self._hidden, norm, self._config.norm_eps)
        _fold_norm(norm, [head], x.abs().amax(dim=0))

    def _fold_value(self, raw: RawLayer, greatest: torch.Tensor) -> None:
        """The query heads of a group read one value head: they share its factors."""
        shape = (self._config.kv_heads, -1, self._config.head_dim)
        shared = _factors(greatest.view(shape).amax(dim=1), raw.o.abs().amax(dim=0).view(shape).amax(dim=1))
        group = self._config.heads // self._config.kv_heads
        raw.o.mul_(shared[:, None].expand(-1, group, -1).reshape(-1))
        _divide_rows(raw.qkv, raw.qkv_bias, shared.reshape(-1))


def _factors(activations: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Per channel, from the greatest absolute values on both sides."""
    return activations.clamp(min=1e-5) ** STRENGTH / weights.clamp(min=1e-5) ** (1 - STRENGTH)


def _fold_norm(norm: torch.Tensor, weights: list[torch.Tensor], greatest: torch.Tensor) -> None:
    """`weights`: all that read what `norm` makes."""
    factors = _factors(greatest, torch.stack([weight.abs().amax(dim=0) for weight in weights]).amax(dim=0))
    norm.div_(factors)
    for weight in weights:
        weight.mul_(factors)


def _divide_rows(weight: torch.Tensor, bias: torch.Tensor | None, factors: torch.Tensor) -> None:
    """The last rows of a merged weight: v of q, k, v; up of gate, up."""
    weight[-len(factors) :].div_(factors[:, None])
    if bias is not None:
        bias[-len(factors) :].div_(factors)
