"""A model whose prompt is the text of its messages and nothing else, with SmolLM2's vocabulary, for the scripted core,
which answers with its prompt: so a test writes the whole answer, tags of reasoning and tool calls included."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from tests.engines.weights import smollm2
from tests.tiny_models import HIDDEN, write_safetensors

TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if tools is defined and false %}<tool_call>{{ tools }}</tool_call><think></think>{% endif %}"
)
"""Names the tags, so that the engine knows what the model's answers look like, and writes none of them."""


def write_talking_model(folder: Path) -> Path:
    write_safetensors(folder)
    path = smollm2()
    tokenizer, _ = load_tokenizer(open_model("gguf", {path.name: str(path)}))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    vocab = tokenizer.get_vocab_size()
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"] = np.zeros((vocab, HIDDEN), np.float32)  # the scripted core loads none of it
    save_file(weights, folder / "model.safetensors")
    config |= {"vocab_size": vocab, "max_position_embeddings": 2048, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    settings = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
