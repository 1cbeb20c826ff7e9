"""What the configurations of mixture-of-experts decoders mean; see `hf_dense`."""

from __future__ import annotations

from typing import Any

from engines.native.loader.hf_dense import decoder, kinds_by, windows_of
from engines.native.loader.hf_fields import Json, number, only, real, refused
from engines.native.loader.hf_rope import rope, yarn_scale
from engines.native.models.config import DecoderConfig, Latent, Moe


def mixtral(config: Json) -> DecoderConfig:
    layers = number(config, "num_hidden_layers")
    size = number(config, "head_dim", number(config, "hidden_size") // number(config, "num_attention_heads"))
    moe = Moe(
        experts=number(config, "num_local_experts", 8),
        active=number(config, "num_experts_per_tok", 2),
        ffn=number(config, "intermediate_size"),
        sparse=(True,) * layers,
    )
    return decoder(
        config,
        "mixtral",
        norm_eps=real(config, "rms_norm_eps", 1e-5),
        rope=rope(config, size, theta=1_000_000.0),
        windows=windows_of(config, kinds_by(layers, lambda _: True)),
        moe=_checked(moe),
    )


def qwen2_moe(config: Json) -> DecoderConfig:
    """With an expert that every token passes, in the share that a gate gives it."""
    moe = _qwen(config, shared_ffn=number(config, "shared_expert_intermediate_size", 5632), shared_gate=True)
    return decoder(config, "qwen2_moe", qkv_bias=bool(config.get("qkv_bias", True)), moe=moe)


def qwen3_moe(config: Json) -> DecoderConfig:
    bias = bool(config.get("attention_bias", False))
    return decoder(config, "qwen3_moe", qkv_bias=bias, o_bias=bias, qk_norm=True, moe=_qwen(config))


def _qwen(config: Json, **fields: Any) -> Moe:
    only(config, "use_sliding_window", False)
    layers, step = number(config, "num_hidden_layers"), number(config, "decoder_sparse_step", 1)
    plain = config.get("mlp_only_layers") or []
    moe = Moe(
        experts=number(config, "num_experts" if "num_experts" in config else "num_local_experts"),
        active=number(config, "num_experts_per_tok"),
        ffn=number(config, "moe_intermediate_size"),
        sparse=tuple(layer not in plain and (layer + 1) % step == 0 for layer in range(layers)),
        normalise=bool(config.get("norm_topk_prob", False)),
        **fields,
    )
    return _checked(moe)


def deepseek_v2(config: Json) -> DecoderConfig:
    only(config, "topk_method", "greedy", "group_limited_greedy", None)
    only(config, "norm_topk_prob", False, None)
    only(config, "scoring_func", "softmax")
    grouped = config.get("topk_method") == "group_limited_greedy"
    moe = _deepseek(
        config,
        normalise=False,
        scale=real(config, "routed_scaling_factor", 1.0),
        groups=number(config, "n_group") if grouped else 1,
        top_groups=number(config, "topk_group") if grouped else 1,
    )
    return _latent(config, "deepseek_v2", moe, interleaved=True)


def deepseek_v3(config: Json) -> DecoderConfig:
    only(config, "topk_method", "noaux_tc", None)
    only(config, "scoring_func", "sigmoid")
    moe = _deepseek(
        config,
        scoring="sigmoid",
        normalise=bool(config.get("norm_topk_prob", True)),
        scale=real(config, "routed_scaling_factor", 2.5),
        groups=number(config, "n_group", 8),
        top_groups=number(config, "topk_group", 4),
        group_best=2,
        correction=True,
    )
    return _latent(config, "deepseek_v3", moe, interleaved=bool(config.get("rope_interleave", True)))


def _deepseek(config: Json, **fields: Any) -> Moe:
    only(config, "moe_layer_freq", 1)
    layers, first = number(config, "num_hidden_layers"), int(config.get("first_k_dense_replace") or 0)
    ffn = number(config, "moe_intermediate_size")
    moe = Moe(
        experts=number(config, "n_routed_experts"),
        active=number(config, "num_experts_per_tok"),
        ffn=ffn,
        sparse=tuple(layer >= first for layer in range(layers)),
        shared_ffn=ffn * int(config.get("n_shared_experts") or 0),
        **fields,
    )
    return _checked(moe)


def _checked(moe: Moe) -> Moe:
    if moe.active > moe.experts:
        raise refused(f"num_experts_per_tok is {moe.active}, but there are {moe.experts} experts")
    if moe.experts % moe.groups or moe.top_groups > moe.groups:
        raise refused(f"n_group is {moe.groups} and topk_group {moe.top_groups}, with {moe.experts} experts")
    if moe.active > moe.experts // moe.groups * moe.top_groups:
        raise refused(f"num_experts_per_tok is {moe.active}: the {moe.top_groups} groups chosen have fewer experts")
    return moe


def _latent(config: Json, architecture: str, moe: Moe, interleaved: bool) -> DecoderConfig:
    latent = Latent(
        q_rank=int(config.get("q_lora_rank") or 0),
        kv_rank=number(config, "kv_lora_rank"),
        nope_dim=number(config, "qk_nope_head_dim"),
        rope_dim=number(config, "qk_rope_head_dim"),
        value_dim=number(config, "v_head_dim"),
    )
    turned = rope(config, latent.rope_dim, interleaved=interleaved)
    scale = (latent.nope_dim + latent.rope_dim) ** -0.5
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if turned.kind != "default" and scaling.get("mscale_all_dim"):
        scale *= yarn_scale(turned.factor, scaling["mscale_all_dim"]) ** 2
    bias = bool(config.get("attention_bias", False))
    return decoder(
        config | {"head_dim": latent.kv_rank + latent.rope_dim, "num_key_value_heads": 1},
        architecture,
        qkv_bias=bias,
        o_bias=bias,
        rope=turned,
        attention_scale=scale,
        moe=moe,
        latent=latent,
    )
