"""DecoderConfig from the metadata of a GGUF file."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from engines.native.loader.errors import BadModel
from engines.native.loader.gguf import GgufFile
from engines.native.models.config import DecoderConfig, Rope

_ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")  # Mistral's files say llama


def decoder_config(file: GgufFile) -> DecoderConfig:
    """Raises BadModel("unknown_architecture"), naming the key, for whatever the decoder would compute wrongly."""
    keys = _Keys(file)
    architecture = keys.architecture
    heads = keys.number("attention.head_count")
    hidden = keys.number("embedding_length")
    head_dim = keys.number("attention.key_length", hidden // heads)
    if keys.number("attention.value_length", head_dim) != head_dim:
        raise BadModel("unknown_architecture", f"{architecture}.attention.value_length differs from key_length")
    if keys.number("rope.dimension_count", head_dim) != head_dim:
        raise BadModel("unknown_architecture", f"{architecture}.rope.dimension_count is not the head size {head_dim}")
    if keys.number("expert_count", 0):
        raise BadModel("unknown_architecture", f"{architecture}.expert_count: mixture of experts is not served yet")
    layers = keys.number("block_count")
    config = DecoderConfig(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        ffn=keys.number("feed_forward_length"),
        heads=heads,
        kv_heads=keys.number("attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=_vocab(file),
        context_length=keys.number("context_length"),
        norm_eps=float(keys.value("attention.layer_norm_rms_epsilon", 1e-5)),
        rope=replace(_rope(keys), interleaved=architecture == "llama"),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm=architecture in ("qwen3", "gemma3"),
        windows=(keys.number("attention.sliding_window", 0),) * layers,
    )
    return _gemma3(keys, config) if architecture == "gemma3" else config


_GEMMA3_27B = 62
"""Layers of the one Gemma 3 whose queries are scaled by hidden size / heads."""
_GEMMA3_LOCAL_BASE = 10_000.0


def _gemma3(keys: _Keys, config: DecoderConfig) -> DecoderConfig:
    """What the file leaves to the reader, as llama.cpp has it: every sixth layer sees everything, the others turn by a
    base of their own. Norms in the file have their 1 already."""
    every = keys.number("attention.sliding_window_pattern", 6)
    whole = [(layer + 1) % every == 0 for layer in range(config.layers)]
    local = Rope(_GEMMA3_LOCAL_BASE)
    scaled = config.hidden // config.heads if config.layers == _GEMMA3_27B else config.head_dim
    return replace(
        config,
        form="sandwich",
        activation="gelu_tanh",
        windows=tuple(0 if all_seen else config.windows[0] for all_seen in whole),
        ropes=tuple(config.rope if all_seen else local for all_seen in whole),
        embedding_scale=math.sqrt(config.hidden),
        attention_scale=scaled**-0.5,
        logit_softcap=float(keys.value("final_logit_softcapping", 0.0)),
    )


class _Keys:
    """Metadata under the architecture's prefix."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.architecture = str(file.metadata.get("general.architecture", ""))
        if self.architecture not in _ARCHITECTURES:
            raise BadModel(
                "unknown_architecture",
                f"{file.path.name}: general.architecture is {self.architecture!r}",
                f"the native engine serves {', '.join(_ARCHITECTURES)}; the llamacpp engine serves others",
            )

    def value(self, key: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: int | None = None) -> int:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or (value <= 0 and value != default):
            raise BadModel(
                "unknown_architecture",
                f"{self.file.path.name}: key {self.architecture}.{key} is {_short(value)}, a positive whole number is "
                "needed",
            )
        return value


def _short(value: Any) -> str:
    return "absent" if value is None else repr(value)[:60]


def _vocab(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise BadModel("missing_tensor", f"{file.path.name} has no tensor token_embd.weight")
    return embedding.shape[0]


def _rope(keys: _Keys) -> Rope:
    theta = float(keys.value("rope.freq_base", 10_000.0))
    if "rope_freqs.weight" in keys.file.tensors:
        return Rope(theta, "factors")
    kind = str(keys.value("rope.scaling.type", "none"))
    if kind == "none":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, "linear", factor=float(keys.value("rope.scaling.factor", 1.0)))
    raise BadModel(
        "unknown_architecture",
        f"{keys.file.path.name}: key {keys.architecture}.rope.scaling.type is {kind!r}",
        "the native engine knows linear scaling and rope_freqs",
    )
