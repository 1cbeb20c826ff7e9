"""MiniCPM, Baichuan 2 and ChatGLM in plain torch, after their published modelling code (openbmb/MiniCPM-2B-sft-bf16,
baichuan-inc/Baichuan2-7B-Base, THUDM/chatglm3-6b), with its tensor names: transformers has no class of them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

Tensors = dict[str, torch.Tensor]


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def turn_halves(x: torch.Tensor, theta: float) -> torch.Tensor:
    """x [tokens, heads, d]: rotate_half."""
    d = x.shape[-1]
    angles = torch.arange(len(x)).float()[:, None] / theta ** (torch.arange(0, d, 2).float() / d)
    emb = torch.cat([angles, angles], -1)[:, None]
    return x * emb.cos() + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * emb.sin()


def turn_pairs_of_first_half(x: torch.Tensor, theta: float) -> torch.Tensor:
    """ChatGLM: of each head the first half is turned, in neighbouring pairs."""
    d = x.shape[-1] // 2
    angles = torch.arange(len(x)).float()[:, None] / theta ** (torch.arange(0, d, 2).float() / d)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    turned, kept = x[..., :d], x[..., d:]
    pairs = turned.reshape(*turned.shape[:-1], d // 2, 2)
    out = torch.stack(
        [pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin], -1
    ).flatten(-2)
    return torch.cat([out, kept], -1)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, d] each, k and v with fewer heads → [tokens, heads × d]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def minicpm(config: dict[str, Any], w: Tensors, ids: list[int]) -> torch.Tensor:
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    depth = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])
    h = F.embedding(torch.tensor(ids), w["model.embed_tokens.weight"]) * config["scale_emb"]
    for n in range(config["num_hidden_layers"]):
        p = f"model.layers.{n}."
        x = rms(h, w[p + "input_layernorm.weight"], eps)
        q, k, v = (
            F.linear(x, w[f"{p}self_attn.{name}_proj.weight"]).view(len(ids), count, -1)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        out = attend(turn_halves(q, 10_000.0), turn_halves(k, 10_000.0), v)
        h = h + F.linear(out, w[p + "self_attn.o_proj.weight"]) * depth
        x = rms(h, w[p + "post_attention_layernorm.weight"], eps)
        gated = F.silu(F.linear(x, w[p + "mlp.gate_proj.weight"])) * F.linear(x, w[p + "mlp.up_proj.weight"])
        h = h + F.linear(gated, w[p + "mlp.down_proj.weight"]) * depth
    h = rms(h, w["model.norm.weight"], eps)
    return F.linear(h / (config["hidden_size"] / config["dim_model_base"]), w["model.embed_tokens.weight"])


def baichuan2(config: dict[str, Any], w: Tensors, ids: list[int]) -> torch.Tensor:
    heads, eps = config["num_attention_heads"], config["rms_norm_eps"]
    h = F.embedding(torch.tensor(ids), w["model.embed_tokens.weight"])
    for n in range(config["num_hidden_layers"]):
        p = f"model.layers.{n}."
        x = rms(h, w[p + "input_layernorm.weight"], eps)
        proj = F.linear(x, w[p + "self_attn.W_pack.weight"]).unflatten(-1, (3, config["hidden_size"]))
        q, k, v = (part.view(len(ids), heads, -1) for part in proj.unbind(-2))
        out = attend(turn_halves(q, 10_000.0), turn_halves(k, 10_000.0), v)
        h = h + F.linear(out, w[p + "self_attn.o_proj.weight"])
        x = rms(h, w[p + "post_attention_layernorm.weight"], eps)
        gated = F.silu(F.linear(x, w[p + "mlp.gate_proj.weight"])) * F.linear(x, w[p + "mlp.up_proj.weight"])
        h = h + F.linear(gated, w[p + "mlp.down_proj.weight"])
    h = rms(h, w["model.norm.weight"], eps)
    return F.linear(h, F.normalize(w["lm_head.weight"]))


def chatglm(config: dict[str, Any], w: Tensors, ids: list[int]) -> torch.Tensor:
    heads, groups, size = config["num_attention_heads"], config["multi_query_group_num"], config["kv_channels"]
    eps, theta = config["layernorm_epsilon"], 10_000.0 * config["rope_ratio"]
    h = F.embedding(torch.tensor(ids), w["transformer.embedding.word_embeddings.weight"])
    for n in range(config["num_layers"]):
        p = f"transformer.encoder.layers.{n}."
        x = rms(h, w[p + "input_layernorm.weight"], eps)
        name = p + "self_attention.query_key_value."
        mixed = F.linear(x, w[name + "weight"], w[name + "bias"])
        q, k, v = mixed.split([heads * size, groups * size, groups * size], dim=-1)
        q, k, v = q.view(len(ids), heads, size), k.view(len(ids), groups, size), v.view(len(ids), groups, size)
        out = attend(turn_pairs_of_first_half(q, theta), turn_pairs_of_first_half(k, theta), v)
        h = h + F.linear(out, w[p + "self_attention.dense.weight"])
        x = rms(h, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = F.linear(x, w[p + "mlp.dense_h_to_4h.weight"]).chunk(2, dim=-1)
        h = h + F.linear(F.silu(gate) * up, w[p + "mlp.dense_4h_to_h.weight"])
    h = rms(h, w["transformer.encoder.final_layernorm.weight"], eps)
    return F.linear(h, w["transformer.output_layer.weight"])
