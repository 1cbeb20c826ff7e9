"""An EAGLE-3 head (https://arxiv.org/abs/2503.01840) from its files, in both dialects of the hub, and its arithmetic.

One decoder layer reads, for token i, the embedding of token i + 1 beside a feature of token i, and says which token
i + 2 is, in a vocabulary of its own. The feature is made of three residual streams of the target (`fc`) where the
target has computed the token; for a token that the head has guessed it is what the layer gave before its last norm.

EAGLE and SGLang   config of the layer itself; midlayer.*; eagle_config counts a layer by its output
speculators, vLLM  speculators_model_type, the layer under transformer_layer_config; layers.0.*; the stream before it

d2t is an offset: target id = draft id + d2t[draft id].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engines.native.layers.embedding import Embedding, TableEmbedding
from engines.native.layers.linear import Linear, method_for
from engines.native.layers.rope import cos_sin_table
from engines.native.loader.errors import BadModel
from engines.native.loader.hf_config import decoder_config
from engines.native.loader.hf_fields import Json, refused
from engines.native.loader.names import expected_shapes, layout_of
from engines.native.loader.tensors import TensorInfo
from engines.native.loader.weights import Weights
from engines.native.models.blocks import Block, Pools, make_block
from engines.native.models.build import first_layer
from engines.native.models.config import DecoderConfig
from engines.native.models.tensors import activation_dtype
from engines.native.ops.base import Batch
from engines.native.ops.registry import DEFAULTS, make_ops
from engines.native.runner import ModelRunner
from engines.native.speculation.proposer import ProposerSettings
from engines.native.state import kv_pool
from plugins.speculative.head_files import Shape, as_files, checked, given, same_size, tensors_of, whole_numbers


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """layer: its sizes; vocab is the target's. streams: of the target, which it reads, each before that layer."""

    layer: DecoderConfig
    draft_vocab: int
    streams: tuple[int, ...]
    target_hidden: int
    norm_before_residual: bool


def head_config(said: Json, target_layers: int) -> HeadConfig:
    """Raises BadModel, naming the key."""
    if "speculators_model_type" in said:
        if said["speculators_model_type"] != "eagle3":
            raise refused(f"speculators_model_type is {said['speculators_model_type']!r}; this proposer reads 'eagle3'")
        layer = {"model_type": "llama", **(said.get("transformer_layer_config") or {})}
        streams = said.get("eagle_aux_hidden_state_layer_ids")
    else:
        layer = said
        counted = (said.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
        streams = said.get("eagle_aux_hidden_state_layer_ids") or [number + 1 for number in counted or []]
    if said.get("norm_before_fc"):
        raise refused("norm_before_fc is true, which this head does not compute")
    config = decoder_config(layer)
    if config.layers != 1 or config.form != "pre" or config.norm != "rms" or config.moe or config.latent:
        raise refused(
            f"the head has {config.layers} layers of the form {config.architecture!r}; one dense layer with norms "
            "before attention and MLP is served"
        )
    return HeadConfig(
        layer=config,
        draft_vocab=int(said.get("draft_vocab_size") or config.vocab),
        streams=tuple(streams or (2, target_layers // 2, target_layers - 3)),
        target_hidden=int(said.get("target_hidden_size") or config.hidden),
        norm_before_residual=bool(said.get("norm_before_residual", False)),
    )


class EagleHead:
    """Loaded on the target's device, in the dtype of its activations. Its KV cache is `pools`, one layer. parts: its
    weights, less those that are the target's."""

    def __init__(self, settings: ProposerSettings, blocks: int) -> None:
        """blocks: of its KV cache. Raises ConfigError, with both numbers, for a head of another model; BadModel."""
        target: ModelRunner = settings.runner
        said, paths = given(settings)
        self.config = config = head_config(said, target.config.layers)
        layer, device = config.layer, target.device
        same_size("vocabulary", layer.vocab, settings.vocab)
        same_size("hidden size", config.target_hidden, target.config.hidden)
        found = tensors_of(paths, unread="t2d")
        tensors = checked(found, _names(config, found), frozenset({"embed.weight", "head.weight", "fc.bias"}))
        if "embed.weight" not in tensors:
            same_size("hidden size", layer.hidden, target.config.hidden)
        files = as_files(paths, layer, tensors)
        dtype = "float32" if target.sizes.dtype == "int8" else target.sizes.dtype
        kind, method = activation_dtype(dtype), method_for(dtype, device.type)
        self.targets = _targets(found.get("d2t"), config, settings.vocab).to(device)
        self.positions = min(target.sizes.max_model_len, layer.context_length)
        self._ops, self._eps = make_ops(DEFAULTS[device.type]), layer.norm_eps
        with Weights(files) as weights, torch.inference_mode():
            weight = first_layer(files, weights, dtype, device)
            bias = weights.read("fc.bias", kind, device) if "fc.bias" in tensors else None
            self.fc: Linear = method(weights.read("fc.weight", kind, device), bias)
            self._input_norm, self._hidden_norm, norm = (
                weights.read(name, kind, device)
                for name in ("layers.0.input_norm.weight", "layers.0.hidden_norm.weight", "norm.weight")
            )
            self._embed: Embedding = target.model.weights.embed
            if "embed.weight" in tensors:
                self._embed = TableEmbedding(weights.read("embed.weight", kind, device), kind)
            self._head: Linear = target.model.weights.head
            if "head.weight" in tensors:
                self._head = method(weights.read("head.weight", kind, device), None)
        self.pools: Pools = kv_pool(1, blocks, layer.kv_heads, target.block_size, layer.head_dim, kind, device)[0]
        cos_sin = cos_sin_table(layer.rope, layer.head_dim, self.positions, None).to(device)
        self._block: Block = make_block(layer, 0, weight, norm, cos_sin, self._ops, self.pools)
        self.parts: list[object] = [weight, norm, self._input_norm, self._hidden_norm, self.fc, self.targets]
        if "embed.weight" in tensors:
            self.parts.append(self._embed)
        if "head.weight" in tensors:
            self.parts.append(self._head)

    def __call__(
        self, ids: torch.Tensor, feature: torch.Tensor, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """ids: int64 [t], the token after each; feature: [t, hidden], which may be written over. Keys and values of all
        are written. → logits [m, draft vocab] and features [m, hidden] at batch.logits_index; None where that is
        empty."""
        ops, eps = self._ops, self._eps
        normed = ops.rms_norm(feature, self._hidden_norm, eps)
        x = torch.cat([ops.rms_norm(self._embed(ids), self._input_norm, eps), normed], -1)
        residual = normed if self.config.norm_before_residual else feature
        out = self._block.attend(x, batch)
        if batch.logits_index is not None:
            if not len(batch.logits_index):
                return None
            out, x, residual = self._block.pick(out, x, residual, batch.logits_index)
        x, residual = self._block.finish(out, x, residual)
        return ops.linear(self._head, x), residual


def _names(config: HeadConfig, found: dict[str, TensorInfo]) -> dict[str, tuple[str, Shape]]:
    layer, layout = config.layer, layout_of("safetensors", config.layer.architecture)
    prefix = "midlayer." if any(name.startswith("midlayer.") for name in found) else "layers.0."
    names: dict[str, tuple[str, Shape]] = {
        "fc.weight": ("fc.weight", (layer.hidden, len(config.streams) * config.target_hidden)),
        "fc.bias": ("fc.bias", (layer.hidden,)),
        "layers.0.hidden_norm.weight": (f"{prefix}hidden_norm.weight", (layer.hidden,)),
        "norm.weight": ("norm.weight", (layer.hidden,)),
        "head.weight": ("lm_head.weight", (config.draft_vocab, layer.hidden)),
        "embed.weight": ("embed_tokens.weight", (layer.vocab, layer.hidden)),
    }
    for ours, shape in expected_shapes(layer).items():
        if ours.startswith("layers.0."):
            twice = ours.split(".")[2] in ("q", "k", "v") and len(shape) == 2
            theirs = layout.name(ours).replace("model.layers.0.", prefix)
            names[ours] = (theirs, (shape[0], 2 * shape[1]) if twice else shape)
    return names


def _targets(info: TensorInfo | None, config: HeadConfig, vocab: int) -> torch.Tensor:
    """int64 [draft vocab], the target's ids."""
    ids = torch.arange(config.draft_vocab)
    if info is not None:
        if info.shape != (config.draft_vocab,):
            raise BadModel("wrong_shape", f"d2t has shape {list(info.shape)}; draft_vocab_size is {config.draft_vocab}")
        ids = ids + whole_numbers(info)
    elif config.draft_vocab != vocab:
        raise BadModel(
            "missing_tensor", f"the head says {config.draft_vocab:,} tokens of {vocab:,}, and has no d2t to tell which"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= vocab:
        raise BadModel("bad_values", f"d2t leads to token {int(ids.max()):,}, and the model has {vocab:,}")
    return ids


def probabilities(logits: torch.Tensor, best: int) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [m, v] → the `best` likeliest of each line, float32 and int64 [m, best], best first."""
    chances, ids = F.softmax(logits.float(), -1).topk(best, -1)
    return chances, ids
