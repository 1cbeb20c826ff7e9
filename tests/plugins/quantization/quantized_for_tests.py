"""A model small enough to quantize in a second: three Llama layers with structure in their activations."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from engines.protocol import Channel
from plugins.quantization import job
from tests.tiny_models import write_safetensors

LAYERS, HIDDEN, FFN = 3, 64, 128


def write_model(folder: Path, **changes: Any) -> Path:
    """config, weights (float32), tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    write_safetensors(folder)  # the tokenizer
    torch.manual_seed(0)
    about = {
        "vocab_size": 259,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "bos_token_id": 257,
        "eos_token_id": 258,
        "initializer_range": 0.1,
    }
    model = LlamaForCausalLM(LlamaConfig(**{**about, **changes}))
    model.save_pretrained(folder)
    return folder


def paths_of(folder: Path) -> dict[str, str]:
    return {path.name: str(path) for path in sorted(folder.iterdir())}


def spec_of(model: Path, place: Path, **recipe: Any) -> dict[str, Any]:
    """What the job's child gets."""
    texts = place / "texts.jsonl"
    if not texts.exists():
        place.mkdir(parents=True, exist_ok=True)
        words = ["river", "harbour", "ninety", "compare", "if x:", "return", "blue", "quickly"]
        rows = [" ".join(words[(n * k + k) % 8] for k in range(1, 12)) + f" {n}" for n in range(400)]
        texts.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return {
        "recipe": {"samples": 32, "tokens": 64, **recipe},
        "paths": paths_of(model),
        "format": "safetensors",
        "calibration": str(texts),
        "workdir": str(place / "work"),
        "staging": str(place / "version"),
    }


def run(spec: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The report, and the lines that were said on the way."""
    out = io.StringIO()
    report = job.run(job.Input(**spec), Channel(out))
    return report, [json.loads(line) for line in out.getvalue().splitlines()]
