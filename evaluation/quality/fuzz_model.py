"""Files of random models that answer in a millisecond, for asking a live engine ten thousand times: one that generates,
with a template that knows tools and reasoning, and one that makes embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTEXT, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 256, 32, 64, 4, 2, 8
SPECIAL = ["<|start|>", "<|end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
WORDS = ["the", " a", " is", "\n\n", "{}", '":', '{"', '"}', "true", " 🔥", "name", "arguments"]
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ message.role[0] }}:{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)


def write(folder: Path, *, embeds: bool = False) -> dict[str, str]:
    """Returns file name → path."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    vocab = tokenizer.get_vocab_size()
    config = {
        "architectures": ["LlamaModel" if embeds else "LlamaForCausalLM"],
        "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": vocab,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "bos_token_id": vocab - 6, "eos_token_id": vocab - 5, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    about = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(_weights(vocab, "" if embeds else "model."), folder / "model.safetensors")
    return {path.name: str(path) for path in folder.iterdir()}


def _tokenizer() -> Tokenizer:
    """One token per byte, and a few words that JSON and text are made of."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    return tokenizer


def _weights(vocab: int, prefix: str) -> dict[str, np.ndarray]:
    """By the names of transformers, float32, [out, in]."""
    random = np.random.default_rng(0)
    layer = f"{prefix}layers.0"
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}embed_tokens.weight": (vocab, HIDDEN),
        f"{layer}.self_attn.q_proj.weight": (q, HIDDEN),
        f"{layer}.self_attn.k_proj.weight": (kv, HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (kv, HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, q),
        f"{layer}.mlp.gate_proj.weight": (FFN, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (FFN, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, FFN),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{prefix}norm.weight": (HIDDEN,),
    }
    return {name: random.standard_normal(shape).astype(np.float32) * 0.3 for name, shape in shapes.items()}
