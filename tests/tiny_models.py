"""Whole models of some tens of kilobytes, in both formats: one Llama layer, a byte-level tokenizer, a chat template."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

VOCAB, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 259, 32, 64, 4, 2, 8
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def _tokens() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return [*sorted(ByteLevel.alphabet()), "ab", "<|start|>", "<|im_end|>"]


def _weights(seed: int) -> dict[str, np.ndarray]:
    """By the names of transformers, float32, [out, in]."""
    random = np.random.default_rng(seed)
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        f"{layer}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        f"{layer}.mlp.gate_proj.weight": (FFN, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (FFN, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, FFN),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        "model.norm.weight": (HIDDEN,),
    }
    return {name: random.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}


_GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "model.layers.0.self_attn.k_proj.weight": "blk.0.attn_k.weight",
    "model.layers.0.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    "model.layers.0.self_attn.o_proj.weight": "blk.0.attn_output.weight",
    "model.layers.0.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    "model.layers.0.mlp.up_proj.weight": "blk.0.ffn_up.weight",
    "model.layers.0.mlp.down_proj.weight": "blk.0.ffn_down.weight",
    "model.layers.0.input_layernorm.weight": "blk.0.attn_norm.weight",
    "model.layers.0.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
}


def write_gguf(path: Path, *, seed: int = 0, architecture: str = "llama", without: str = "") -> Path:
    """A GGUF file; `without` leaves out one tensor by its GGUF name."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_license("mit")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(_tokens())
    writer.add_token_types([1] * 257 + [3, 3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_chat_template(TEMPLATE)
    for name, array in _weights(seed).items():
        if _GGUF_NAMES[name] != without:
            writer.add_tensor(_GGUF_NAMES[name], array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(folder: Path, *, seed: int = 0, bos: bool = False) -> Path:
    """A folder as the hub holds it: config, weights, tokenizer. `bos`: plain prompts begin with <|start|>."""
    from safetensors.numpy import save_file
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCAB,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 257,
        "eos_token_id": 258,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(seed), folder / "model.safetensors")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(_tokens()[:257])}, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _tokens()[257:]])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", 257)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<|start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE})
    )
    return folder
