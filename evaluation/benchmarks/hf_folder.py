"""A GGUF model as a folder that transformers reads, with the very numbers that our engine computes with in float32.

    python -m evaluation.benchmarks.hf_folder MODEL.gguf FOLDER

For comparisons of two engines on the same weights: tensors are dequantized by our reader and written as float32; the
tokenizer is the one that our engine makes of the file. Llama and Qwen2 only: whatever else is refused by name.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.names import file_name
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.loader.weights import Weights

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def export(model: Path, folder: Path) -> Path:
    """Writes config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json; returns
    `folder`. Raises ValueError for an architecture that it does not know, BadModel for a file that is none."""
    files = open_model("gguf", {model.name: str(model)})
    shape = files.config
    if shape.qkv_bias is not (shape.architecture == "qwen2") or shape.architecture not in CLASSES:
        biases = "with" if shape.qkv_bias else "without"
        raise ValueError(f"{model.name} is {shape.architecture} {biases} biases; known are llama without, qwen2 with")
    if shape.rope.kind != "default" or any(shape.windows):
        raise ValueError(f"{model.name} has a {shape.rope.kind} rope or a sliding window, which is not exported")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, facts = load_tokenizer(files)
    eos = list(facts.eos_ids)
    _write(folder / "config.json", _config(files) | {"bos_token_id": facts.bos_id, "eos_token_id": eos[0]})
    _write(folder / "generation_config.json", {"do_sample": False, "eos_token_id": eos})
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None if facts.bos_id is None else tokenizer.id_to_token(facts.bos_id),
            "eos_token": tokenizer.id_to_token(eos[0]),
            "chat_template": facts.chat_template,
            "clean_up_tokenization_spaces": False,
            "model_max_length": shape.context_length,
        },
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    with Weights(files) as weights:
        state = {file_name(name, "safetensors"): _tensor(files, weights, name) for name in files.tensors}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _config(files: ModelFiles) -> dict[str, Any]:
    shape = files.config
    return {
        "architectures": [CLASSES[shape.architecture]],
        "model_type": shape.architecture,
        "torch_dtype": "float32",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope.theta,
        "tie_word_embeddings": shape.tied,
    }


def _tensor(files: ModelFiles, weights: Weights, name: str) -> torch.Tensor:
    """float32. GGUF keeps each head's rows of Llama's q and k in pairs (0, d/2, 1, d/2 + 1, …), for a rope that turns
    neighbours; transformers turns halves. The same rows, in its order."""
    tensor = weights.read(name, torch.float32)
    shape = files.config
    part = name.split(".")[2] if name.startswith("layers.") else ""
    if not shape.rope.interleaved or part not in ("q", "k"):
        return tensor
    heads = shape.heads if part == "q" else shape.kv_heads
    pairs = tensor.view(heads, shape.head_dim // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape).contiguous()


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(export(options.model, options.folder))


if __name__ == "__main__":
    main()
