"""One set of tensor names for the decoder, and where each format keeps them."""

from __future__ import annotations

from engines.native.models.config import DecoderConfig

_GGUF = {
    "input_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "post_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_HF = {
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
_TOP_GGUF = {"embed": "token_embd", "norm": "output_norm", "head": "output", "rope_factors": "rope_freqs"}
_TOP_HF = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}

IGNORED_SUFFIXES = ("rotary_emb.inv_freq",)  # derived from the configuration; old checkpoints store them


def expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Our name → shape of every tensor that the decoder needs, in loading order."""
    hidden, ffn = config.hidden, config.ffn
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab, hidden)}
    if config.rope.kind == "factors":
        shapes["rope_factors.weight"] = (config.head_dim // 2,)
    linears = {
        "q": (config.q_size, hidden, config.qkv_bias),
        "k": (config.kv_size, hidden, config.qkv_bias),
        "v": (config.kv_size, hidden, config.qkv_bias),
        "o": (hidden, config.q_size, config.o_bias),
        "gate": (ffn, hidden, config.mlp_bias),
        "up": (ffn, hidden, config.mlp_bias),
        "down": (hidden, ffn, config.mlp_bias),
    }
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        shapes[f"{prefix}.input_norm.weight"] = (hidden,)
        shapes[f"{prefix}.post_norm.weight"] = (hidden,)
        for name, (rows, columns, bias) in linears.items():
            shapes[f"{prefix}.{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}.{name}.bias"] = (rows,)
        if config.qk_norm:
            shapes[f"{prefix}.q_norm.weight"] = (config.head_dim,)
            shapes[f"{prefix}.k_norm.weight"] = (config.head_dim,)
    shapes["norm.weight"] = (hidden,)
    if not config.tied:
        shapes["head.weight"] = (config.vocab, hidden)
    return shapes


def file_name(name: str, layout: str) -> str:
    """The name in a file of `layout` ("gguf" or "safetensors") of our tensor `name`."""
    gguf = layout == "gguf"
    parts = name.split(".")
    if parts[0] == "layers":
        _, layer, part, kind = parts
        return f"blk.{layer}.{_GGUF[part]}.{kind}" if gguf else f"model.layers.{layer}.{_HF[part]}.{kind}"
    return f"{(_TOP_GGUF if gguf else _TOP_HF)[parts[0]]}.{parts[1]}"
