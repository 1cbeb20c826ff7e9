"""Model shapes that benchmarks run with random weights: config.json files without a model."""

from __future__ import annotations

import json
from importlib import resources

from engines.native.loader.hf_config import decoder_config
from engines.native.models.config import DecoderConfig


def shape(name: str) -> DecoderConfig:
    """`name`: "llama8b" (Llama-3.1-8B) or "qwen06b" (Qwen3-0.6B)."""
    return decoder_config(json.loads(resources.files(__name__).joinpath(f"{name}.json").read_text()))
