"""What the configurations of dense decoders mean. One function for each `model_type`; what a class of transformers
takes where a file says nothing stands here, too, since files leave out what is usual."""

from __future__ import annotations

import math
from typing import Any

from engines.native.loader.hf_fields import Json, layer_kinds, number, only, real, refused
from engines.native.loader.hf_rope import rope
from engines.native.models.config import DecoderConfig


def decoder(config: Json, architecture: str, *, head_dim: int = 0, tied: bool = False, **fields: Any) -> DecoderConfig:
    """The common part of all configurations. head_dim, tied: where the file says nothing; 0 = hidden / heads."""
    heads, hidden = number(config, "num_attention_heads"), number(config, "hidden_size")
    head_dim = number(config, "head_dim", head_dim or hidden // heads)
    layers = number(config, "num_hidden_layers")
    tied = bool(config.get("tie_word_embeddings", tied))
    if "activation" not in fields:
        only(config, "hidden_act", "silu", "swish")
    common: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "ffn": number(config, "intermediate_size"),
        "heads": heads,
        "kv_heads": number(config, "num_key_value_heads", heads),
        "head_dim": head_dim,
        "vocab": number(config, "vocab_size"),
        "context_length": number(config, "max_position_embeddings"),
        "norm_eps": real(config, "rms_norm_eps", 1e-6),
        "tied": tied,
        "qkv_bias": False,
        "o_bias": False,
        "mlp_bias": False,
        "qk_norm": False,
        "windows": (0,) * layers,
    }
    if "rope" not in fields:
        common["rope"] = rope(config, head_dim)
    return DecoderConfig(architecture=architecture, **(common | fields))


def head_dim_of(config: Json, default: int = 0) -> int:
    return number(config, "head_dim", default or number(config, "hidden_size") // number(config, "num_attention_heads"))


def windows_of(config: Json, default: list[str], window: int | None = None) -> tuple[int, ...]:
    """Per layer; `default`: the kinds of the layers where the file does not list them."""
    size = int(config.get("sliding_window", window) or 0)
    kinds = layer_kinds(config, len(default), default)
    return tuple(size if kind == "sliding_attention" else 0 for kind in kinds)


def kinds_by(layers: int, sliding: Any) -> list[str]:
    """sliding: layer number → whether its queries see a window only."""
    return ["sliding_attention" if sliding(layer) else "full_attention" for layer in range(layers)]


def llama(config: Json) -> DecoderConfig:
    bias = bool(config.get("attention_bias", False))
    return decoder(
        config, "llama", qkv_bias=bias, o_bias=bias, mlp_bias=bool(config.get("mlp_bias", False))
    )  # fmt: skip


def mistral(config: Json) -> DecoderConfig:
    layers = number(config, "num_hidden_layers")
    return decoder(config, "mistral", windows=windows_of(config, kinds_by(layers, lambda _: True), 4096))


def qwen2(config: Json) -> DecoderConfig:
    """Qwen 1.5, 2 and 2.5."""
    return decoder(config, "qwen2", qkv_bias=True, windows=_qwen_windows(config))


def qwen3(config: Json) -> DecoderConfig:
    bias = bool(config.get("attention_bias", False))
    return decoder(config, "qwen3", qkv_bias=bias, o_bias=bias, qk_norm=True, windows=_qwen_windows(config))


def _qwen_windows(config: Json) -> tuple[int, ...]:
    layers = number(config, "num_hidden_layers")
    if not config.get("use_sliding_window"):
        return (0,) * layers
    first = int(config.get("max_window_layers", 28))
    return windows_of(config, kinds_by(layers, lambda layer: layer >= first), 4096)


def smollm3(config: Json) -> DecoderConfig:
    """Every fourth layer is not rotated."""
    layers = number(config, "num_hidden_layers")
    every = number(config, "no_rope_layer_interval", 4)
    rotated = config.get("no_rope_layers") or [int((layer + 1) % every != 0) for layer in range(layers)]
    turned = rope(config, head_dim_of(config), theta=2_000_000.0)
    bias = bool(config.get("attention_bias", False))
    windows = (0,) * layers
    if config.get("use_sliding_window") and config.get("sliding_window"):
        windows = windows_of(config, kinds_by(layers, lambda layer: not rotated[layer]))
    return decoder(
        config,
        "smollm3",
        tied=True,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        rope=turned,
        ropes=tuple(turned if rotated[layer] else None for layer in range(layers)),
        windows=windows,
    )


def _gemma(config: Json, architecture: str, **fields: Any) -> DecoderConfig:
    """Common to all of them: norms multiply by 1 + weight, embeddings by the root of their width."""
    only(config, "use_bidirectional_attention", False, None)
    only(config, "hidden_activation", "gelu_pytorch_tanh", None)
    only(config, "hidden_act", "gelu_pytorch_tanh", "gelu", None)  # "gelu" is what Gemma 1's files say of the same
    bias = bool(config.get("attention_bias", False))
    return decoder(
        config,
        architecture,
        head_dim=256,
        tied=True,
        qkv_bias=bias,
        o_bias=bias,
        activation="gelu_tanh",
        norm_offset=1.0,
        embedding_scale=math.sqrt(number(config, "hidden_size")),
        **fields,
    )


def gemma(config: Json) -> DecoderConfig:
    return _gemma(config, "gemma", rope=rope(config, head_dim_of(config, 256)))


def gemma2(config: Json) -> DecoderConfig:
    layers = number(config, "num_hidden_layers")
    return _gemma(
        config,
        "gemma2",
        form="sandwich",
        rope=rope(config, head_dim_of(config, 256)),
        windows=windows_of(config, kinds_by(layers, lambda layer: (layer + 1) % 2), 4096),
        attention_scale=real(config, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_cap(config, "attn_logit_softcapping", 50.0),
        logit_softcap=_cap(config, "final_logit_softcapping", 30.0),
    )


def gemma3(config: Json) -> DecoderConfig:
    """Text only. Layers with a window have a rotary base of their own."""
    layers = number(config, "num_hidden_layers")
    every = number(config, "sliding_window_pattern", 6)
    kinds = layer_kinds(config, layers, kinds_by(layers, lambda layer: (layer + 1) % every))
    entries = config.get("rope_parameters") or {}
    size = head_dim_of(config, 256)
    whole = rope(config, size, theta=1_000_000.0, entry=entries.get("full_attention"))
    local_base = {"rope_theta": real(config, "rope_local_base_freq", 10_000.0), "rope_type": "default"}
    local = rope(config, size, entry=local_base | (entries.get("sliding_attention") or {}))
    return _gemma(
        config,
        "gemma3",
        form="sandwich",
        qk_norm=True,
        rope=whole,
        ropes=tuple(local if kind == "sliding_attention" else whole for kind in kinds),
        windows=windows_of(config, kinds, 4096),
        attention_scale=real(config, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_cap(config, "attn_logit_softcapping", 0.0),
        logit_softcap=_cap(config, "final_logit_softcapping", 0.0),
    )


def _cap(config: Json, key: str, default: float) -> float:
    """An explicit null turns a cap off."""
    return real(config, key, 0.0) if key in config else default


def phi3(config: Json) -> DecoderConfig:
    """Phi-3, 3.5 and 4; q, k, v and gate, up are one tensor each."""
    layers = number(config, "num_hidden_layers")
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    if scaling and (scaling.get("rope_type") or scaling.get("type")) == "yarn":  # what early files call longrope
        scaling = scaling | {"rope_type": "longrope"}
    original = {"original_max_position_embeddings": 4096} | config
    return decoder(
        config,
        "phi3",
        norm_eps=real(config, "rms_norm_eps", 1e-5),
        rope=rope(original, head_dim_of(config), partial=1.0, entry=scaling),
        windows=windows_of(config, kinds_by(layers, lambda _: True)),
    )


def _glm(config: Json, architecture: str, **fields: Any) -> DecoderConfig:
    size = head_dim_of(config, 128)
    return decoder(
        config,
        architecture,
        head_dim=128,
        norm_eps=real(config, "rms_norm_eps", 1.5625e-7),
        qkv_bias=bool(config.get("attention_bias", True)),
        rope=rope(config, size, partial=0.5, interleaved=True),
        **fields,
    )


def glm(config: Json) -> DecoderConfig:
    """GLM-4-9B in transformers' own form."""
    return _glm(config, "glm")


def glm4(config: Json) -> DecoderConfig:
    """GLM-4-0414."""
    return _glm(config, "glm4", form="sandwich")


def chatglm(config: Json) -> DecoderConfig:
    """ChatGLM 2 and 3 and GLM-4-9B with their own code, whose keys have other names."""
    only(config, "rmsnorm", True)
    only(config, "post_layer_norm", True)
    only(config, "add_bias_linear", False)
    only(config, "apply_residual_connection_post_layernorm", False)
    only(config, "original_rope", True)
    only(config, "pre_seq_len", None)
    ratio = real(config, "rope_ratio", 1.0)
    vocab = number(config, "padded_vocab_size")
    if ratio != 1 and vocab == 65_024:
        raise refused(
            f"rope_ratio is {ratio}: ChatGLM2-32k divides positions by it and ChatGLM3-32k multiplies the base, and "
            "their files do not say which",
            "serve the model of 8k, or GLM-4",
        )
    heads, hidden = number(config, "num_attention_heads"), number(config, "hidden_size")
    size = number(config, "kv_channels", hidden // heads)
    grouped = bool(config.get("multi_query_attention", False))
    ours = {
        "hidden_size": hidden,
        "intermediate_size": number(config, "ffn_hidden_size"),
        "num_hidden_layers": number(config, "num_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": number(config, "multi_query_group_num") if grouped else heads,
        "head_dim": size,
        "vocab_size": vocab,
        "max_position_embeddings": number(config, "seq_length"),
        "rms_norm_eps": real(config, "layernorm_epsilon", 1e-5),
        "tie_word_embeddings": bool(config.get("tie_word_embeddings", False)),
    }
    return decoder(
        ours,
        "chatglm",
        qkv_bias=bool(config.get("add_qkv_bias", False)),
        rope=rope(ours, size, theta=10_000.0 * ratio, partial=0.5, interleaved=True),
    )


def minicpm(config: Json) -> DecoderConfig:
    """MiniCPM 1, 2 and 4: muP's multipliers on embeddings, residuals and logits."""
    only(config, "num_experts", 0, None)
    only(config, "sparse_config", None)
    layers, hidden = number(config, "num_hidden_layers"), number(config, "hidden_size")
    bias = bool(config.get("attention_bias", False))
    return decoder(
        config,
        "minicpm",
        tied=True,
        qkv_bias=bias,
        o_bias=bias,
        embedding_scale=real(config, "scale_emb"),
        residual_scale=real(config, "scale_depth") / math.sqrt(layers),
        logit_scale=real(config, "dim_model_base") / hidden,
    )


def baichuan(config: Json) -> DecoderConfig:
    """Baichuan 1 and 2 of 7B; those of 13B have no positions but ALiBi, and no `max_position_embeddings`."""
    if "max_position_embeddings" not in config or config.get("hidden_size") == 5120:
        raise refused("a Baichuan model of 13B uses ALiBi, which the native engine does not compute")
    second = "z_loss_weight" in config or config.get("vocab_size") == 125_696
    return decoder(config, "baichuan", normed_head=second)


def cohere(config: Json) -> DecoderConfig:
    """Command-R."""
    only(config, "use_qk_norm", False, None)
    return _cohere(config, "cohere", 500_000.0)


def cohere2(config: Json) -> DecoderConfig:
    """Command-R7B, Command-A: layers that see everything are not rotated."""
    layers = number(config, "num_hidden_layers")
    every = number(config, "sliding_window_pattern", 4)
    kinds = layer_kinds(config, layers, kinds_by(layers, lambda layer: (layer + 1) % every))
    plain = _cohere(config, "cohere2", 10_000.0)
    return _cohere(
        config,
        "cohere2",
        10_000.0,
        windows=windows_of(config, kinds, 4096),
        ropes=tuple(plain.rope if kind == "sliding_attention" else None for kind in kinds),
    )


def _cohere(config: Json, architecture: str, theta: float, **fields: Any) -> DecoderConfig:
    bias = bool(config.get("attention_bias", False))
    return decoder(
        config,
        architecture,
        tied=True,
        form="parallel",
        norm="layer",
        norm_eps=real(config, "layer_norm_eps", 1e-5),
        # Command-R's files say 8,192 positions, from training, beside the 131,072 that it is made for.
        context_length=number(config, "model_max_length", number(config, "max_position_embeddings")),
        qkv_bias=bias,
        o_bias=bias,
        rope=rope(config, head_dim_of(config), theta=theta, interleaved=True),
        logit_scale=real(config, "logit_scale", 0.0625),
        **fields,
    )
