"""A tiny model folder with any chat template and tags, for tests of what stands around a model. A token is a byte."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from engines.native.loader.model_files import open_model
from engines.native.serve.model import ServedModel, load

LAST_MESSAGE = "{%- if tools %}{% endif -%}{{ messages[-1].content }}"
"""With the scripted core, which repeats its prompt: the answer is what the last message says."""
EOS = 2
_SIZE = 8


def write(folder: Path, template: str, *, special: tuple[str, ...] = (), plain: tuple[str, ...] = ()) -> Path:
    """special: tags that are special tokens; plain: those that are tokens and text. Id 2 ends an answer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {f"<unused{index}>": index for index in range(EOS)} | {"<|im_end|>": EOS}
    vocabulary |= {character: len(vocabulary) + index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(tag, special=True) for tag in ("<|im_end|>", *special)])
    tokenizer.add_tokens([AddedToken(tag, special=False) for tag in plain])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    vocab = tokenizer.get_vocab_size()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _SIZE,
        "intermediate_size": _SIZE,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": vocab,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    square, line = np.zeros((_SIZE, _SIZE), np.float32), np.ones(_SIZE, np.float32)
    weights = {"model.embed_tokens.weight": np.zeros((vocab, _SIZE), np.float32), "model.norm.weight": line}
    weights |= {f"{layer}{name}.weight": line for name in ("input_layernorm", "post_attention_layernorm")}
    weights |= {f"{layer}self_attn.{name}_proj.weight": square for name in "qkvo"}
    weights |= {f"{layer}mlp.{name}_proj.weight": square for name in ("gate", "up", "down")}
    save_file(weights, folder / "model.safetensors")
    return folder


def served(folder: Path, **options: str) -> ServedModel:
    return load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}), **options)
