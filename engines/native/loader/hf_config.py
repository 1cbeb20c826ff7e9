"""DecoderConfig from a Hugging Face config.json (the safetensors format)."""

from __future__ import annotations

from typing import Any

from engines.native.loader.errors import BadModel
from engines.native.models.config import ARCHITECTURES, DecoderConfig, Rope


def decoder_config(config: dict[str, Any]) -> DecoderConfig:
    """Raises BadModel("unknown_architecture"), naming the key, for whatever the decoder would compute wrongly."""
    architecture = str(config.get("model_type", ""))
    if architecture not in ARCHITECTURES:
        raise BadModel(
            "unknown_architecture",
            f"config.json: model_type is {architecture!r}",
            f"the native engine serves {', '.join(ARCHITECTURES)}",
        )
    if "quantization_config" in config:
        method = config["quantization_config"].get("quant_method", "?")
        raise BadModel(
            "unknown_type", f"config.json: quantization_config ({method}) cannot be read by the native engine"
        )
    _only(config, "hidden_act", "silu")
    _only(config, "partial_rotary_factor", 1.0)
    heads = _number(config, "num_attention_heads")
    hidden = _number(config, "hidden_size")
    bias = bool(config.get("attention_bias", False))
    layers = _number(config, "num_hidden_layers")
    return DecoderConfig(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        ffn=_number(config, "intermediate_size"),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        vocab=_number(config, "vocab_size"),
        context_length=_number(config, "max_position_embeddings"),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=_rope(config),
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=bias or architecture == "qwen2",
        o_bias=bias and architecture != "qwen2",
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=architecture == "qwen3",
        windows=_windows(config, architecture, layers),
    )


def _number(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value <= 0:
        raise BadModel("unknown_architecture", f"config.json: {key} is {value!r}, a positive whole number is needed")
    return value


def _only(config: dict[str, Any], key: str, wanted: object) -> None:
    if config.get(key, wanted) != wanted:
        raise BadModel("unknown_architecture", f"config.json: {key} is {config[key]!r}; only {wanted!r} is served")


def _rope(config: dict[str, Any]) -> Rope:
    """`rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (before)."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    _only(scaling, "partial_rotary_factor", 1.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, "linear", factor=float(scaling["factor"]))
    if kind == "llama3":
        return Rope(
            theta,
            "llama3",
            factor=float(scaling["factor"]),
            low=float(scaling["low_freq_factor"]),
            high=float(scaling["high_freq_factor"]),
            original_context=int(scaling["original_max_position_embeddings"]),
        )
    raise BadModel(
        "unknown_architecture",
        f"config.json: rope_scaling is {kind!r}",
        "the native engine knows default, linear and llama3; remove the entry to serve the unscaled context",
    )


def _windows(config: dict[str, Any], architecture: str, layers: int) -> tuple[int, ...]:
    window = int(config.get("sliding_window") or 0)
    if architecture == "llama" or not window or (architecture != "mistral" and not config.get("use_sliding_window")):
        return (0,) * layers
    kinds = config.get("layer_types")
    if kinds is None:
        first = 0 if architecture == "mistral" else int(config.get("max_window_layers", layers))
        kinds = ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
