"""One set of tensor names for the decoder, and where each format and architecture keeps them.

Ours: `embed.weight`, `norm.weight`, `head.weight`, and `layers.<n>.<part>.<kind>`; the parts are the keys below, with
`experts.<e>.gate` for one expert's tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engines.native.models.config import DecoderConfig, Latent, Moe


@dataclass(frozen=True, slots=True)
class Layout:
    """layer: prefix of a layer's tensors, {} its number. parts, top: our part → theirs; in `parts`, {} is an expert's
    number, and a key with a kind ("router.bias") wins over the bare part. A fused part, `qkv` or `gate_up`, stands for
    the three or two whose rows follow each other in it. beyond: layers past the last may be there (extra heads that
    predict further tokens, which are not used)."""

    layer: str
    parts: Mapping[str, str]
    top: Mapping[str, str]
    beyond: bool = False

    @property
    def fused(self) -> frozenset[str]:
        return frozenset(self.parts) & frozenset(FUSED)

    def name(self, ours: str) -> str:
        head, *rest = ours.split(".")
        if head != "layers":
            return f"{self.top[head]}.{rest[0]}"
        number, *part, kind = rest
        generic = ".".join("{}" if piece.isdigit() else piece for piece in part)
        expert = next((piece for piece in part if piece.isdigit()), "")
        prefix = self.layer.format(number)
        if f"{generic}.{kind}" in self.parts:
            return prefix + self.parts[f"{generic}.{kind}"].format(expert)
        return f"{prefix}{self.parts[generic].format(expert)}.{kind}"

    def unused(self, name: str, layers: int) -> bool:
        """Whether the file's tensor `name` belongs to a layer that a model of `layers` layers does not have."""
        found = re.match(re.escape(self.layer).replace(r"\{\}", r"(\d+)"), name) if self.beyond else None
        return found is not None and int(found[1]) >= layers


FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}

_GGUF_PARTS = {
    "input_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "after_attention": "post_attention_norm",
    "post_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "after_mlp": "post_ffw_norm",
}
_HF_PARTS = {
    "input_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "post_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GEMMA2_NORMS = {
    "after_attention": "post_attention_layernorm",
    "post_norm": "pre_feedforward_layernorm",
    "after_mlp": "post_feedforward_layernorm",
}
_GLM4_NORMS = {"after_attention": "post_self_attn_layernorm", "after_mlp": "post_mlp_layernorm"}
_EXPERTS = {
    "router": "mlp.gate",
    "experts.{}.gate": "mlp.experts.{}.gate_proj",
    "experts.{}.up": "mlp.experts.{}.up_proj",
    "experts.{}.down": "mlp.experts.{}.down_proj",
}
_QWEN_MOE = _EXPERTS | {
    "shared.gate": "mlp.shared_expert.gate_proj",
    "shared.up": "mlp.shared_expert.up_proj",
    "shared.down": "mlp.shared_expert.down_proj",
    "shared_router": "mlp.shared_expert_gate",
}
_MIXTRAL = {
    "router": "block_sparse_moe.gate",
    "experts.{}.gate": "block_sparse_moe.experts.{}.w1",
    "experts.{}.up": "block_sparse_moe.experts.{}.w3",
    "experts.{}.down": "block_sparse_moe.experts.{}.w2",
}
_DEEPSEEK = _EXPERTS | {
    "router.bias": "mlp.gate.e_score_correction_bias",
    "shared.gate": "mlp.shared_experts.gate_proj",
    "shared.up": "mlp.shared_experts.up_proj",
    "shared.down": "mlp.shared_experts.down_proj",
    "q_a": "self_attn.q_a_proj",
    "q_a_norm": "self_attn.q_a_layernorm",
    "q_b": "self_attn.q_b_proj",
    "kv_a": "self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": "self_attn.kv_a_layernorm",
    "kv_b": "self_attn.kv_b_proj",
}
_CHATGLM = {
    "input_norm": "input_layernorm",
    "qkv": "self_attention.query_key_value",
    "o": "self_attention.dense",
    "post_norm": "post_attention_layernorm",
    "gate_up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
_HF_TOP = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}

GGUF = Layout(
    "blk.{}.",
    _GGUF_PARTS,
    {"embed": "token_embd", "norm": "output_norm", "head": "output", "rope_factors": "rope_freqs"},
)
_CHANGES: dict[str, dict[str, str]] = {
    "gemma2": _GEMMA2_NORMS,
    "gemma3": _GEMMA2_NORMS,
    "phi3": {"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"},
    "glm": {"gate_up": "mlp.gate_up_proj"},
    "glm4": _GLM4_NORMS | {"gate_up": "mlp.gate_up_proj"},
    "baichuan": {"qkv": "self_attn.W_pack"},
    "mixtral": _MIXTRAL,
    "qwen2_moe": _QWEN_MOE,
    "qwen3_moe": _EXPERTS,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}
"""Architecture → what its safetensors call otherwise than Llama's."""

IGNORED_SUFFIXES = ("rotary_emb.inv_freq", "rotary_pos_emb.inv_freq")
"""Derived from the configuration; old checkpoints store them."""


def layout_of(format: str, architecture: str) -> Layout:
    """format: "gguf" or "safetensors"."""
    if format == "gguf":
        return GGUF
    if architecture == "chatglm":
        top = {
            "embed": "transformer.embedding.word_embeddings",
            "norm": "transformer.encoder.final_layernorm",
            "head": "transformer.output_layer",
        }
        return Layout("transformer.encoder.layers.{}.", _CHATGLM, top)
    parts = _HF_PARTS | _CHANGES.get(architecture, {})
    return Layout("model.layers.{}.", parts, _HF_TOP, beyond=architecture == "deepseek_v3")


def file_name(name: str, format: str, architecture: str = "llama") -> str:
    """The name in a file of `format` ("gguf" or "safetensors") of our tensor `name`."""
    return layout_of(format, architecture).name(name)


Linears = dict[str, tuple[int, int, bool]]
"""Part → (rows, columns, has a bias)."""


def expected_shapes(config: DecoderConfig, fused: frozenset[str] = frozenset()) -> dict[str, tuple[int, ...]]:
    """Our name → shape of every tensor that the decoder needs, in loading order. `fused`: parts that the file keeps as
    one tensor each."""
    hidden = config.hidden
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab, hidden)}
    if config.rope.kind == "factors":
        shapes["rope_factors.weight"] = (config.head_dim // 2,)
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        for name, size in _norms(config).items():
            shapes[f"{prefix}.{name}.weight"] = (size,)
        linears = _attention(config) | _mlp(config, layer)
        for name, (rows, columns, bias) in _joined(linears, fused).items():
            shapes[f"{prefix}.{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}.{name}.bias"] = (rows,)
    shapes["norm.weight"] = (hidden,)
    if not config.tied:
        shapes["head.weight"] = (config.vocab, hidden)
    return shapes


def _norms(config: DecoderConfig) -> dict[str, int]:
    norms = {"input_norm": config.hidden}
    if config.form != "parallel":
        norms["post_norm"] = config.hidden
    if config.form == "sandwich":
        norms |= {"after_attention": config.hidden, "after_mlp": config.hidden}
    if config.qk_norm:
        norms |= {"q_norm": config.head_dim, "k_norm": config.head_dim}
    if config.latent is not None:
        norms["kv_a_norm"] = config.latent.kv_rank
        if config.latent.q_rank:
            norms["q_a_norm"] = config.latent.q_rank
    return norms


def _attention(config: DecoderConfig) -> Linears:
    if config.latent is not None:
        return _latent_attention(config, config.latent)
    return {
        "q": (config.q_size, config.hidden, config.qkv_bias),
        "k": (config.kv_size, config.hidden, config.qkv_bias),
        "v": (config.kv_size, config.hidden, config.qkv_bias),
        "o": (config.hidden, config.q_size, config.o_bias),
    }


def _latent_attention(config: DecoderConfig, latent: Latent) -> Linears:
    query = config.heads * (latent.nope_dim + latent.rope_dim)
    linears: Linears = {}
    if latent.q_rank:
        linears["q_a"] = (latent.q_rank, config.hidden, config.qkv_bias)
        linears["q_b"] = (query, latent.q_rank, False)
    else:
        linears["q"] = (query, config.hidden, False)
    return linears | {
        "kv_a": (latent.kv_rank + latent.rope_dim, config.hidden, config.qkv_bias),
        "kv_b": (config.heads * (latent.nope_dim + latent.value_dim), latent.kv_rank, False),
        "o": (config.hidden, config.heads * latent.value_dim, config.o_bias),
    }


def _mlp(config: DecoderConfig, layer: int) -> Linears:
    if config.moe is not None and config.sparse(layer):
        return _experts(config.hidden, config.moe)
    return {
        "gate": (config.ffn, config.hidden, config.mlp_bias),
        "up": (config.ffn, config.hidden, config.mlp_bias),
        "down": (config.hidden, config.ffn, config.mlp_bias),
    }


def _experts(hidden: int, moe: Moe) -> Linears:
    linears: Linears = {"router": (moe.experts, hidden, moe.correction)}
    for expert in range(moe.experts):
        linears[f"experts.{expert}.gate"] = (moe.ffn, hidden, False)
        linears[f"experts.{expert}.up"] = (moe.ffn, hidden, False)
        linears[f"experts.{expert}.down"] = (hidden, moe.ffn, False)
    if moe.shared_ffn:
        linears["shared.gate"] = (moe.shared_ffn, hidden, False)
        linears["shared.up"] = (moe.shared_ffn, hidden, False)
        linears["shared.down"] = (hidden, moe.shared_ffn, False)
    if moe.shared_gate:
        linears["shared_router"] = (1, hidden, False)
    return linears


def _joined(linears: Linears, fused: frozenset[str]) -> Linears:
    """`linears` with the parts of each fused one in one entry."""
    joined = dict(linears)
    for whole in fused:
        pieces = FUSED[whole]
        if all(piece in joined for piece in pieces):
            rows = sum(joined[piece][0] for piece in pieces)
            _, columns, bias = joined[pieces[0]]
            for piece in pieces:
                del joined[piece]
            joined[whole] = (rows, columns, bias)
    return joined
