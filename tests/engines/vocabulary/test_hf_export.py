"""Each family of GGUF files as config.json and tensors: read again, it is the same model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.tokenizer import TokenizerFacts
from engines.native.loader.weights import Weights
from engines.native.models.config import Rope
from engines.native.vocabulary import tensor_files
from engines.native.vocabulary.hf_export import Export
from tests.engines import gguf_files
from tests.engines.models.harness import check, reference_of, runner_of

FACTS = TokenizerFacts("bpe", gguf_files.VOCAB, "smollm", 0, (1, 2), frozenset({1, 2}), False, "")


def written(files: ModelFiles, folder: Path, dtype: str = "auto") -> dict[str, str]:
    with Weights(files) as weights:
        export = Export(files, weights, dtype)
        (folder / "config.json").write_text(json.dumps(export.config_json(FACTS, files.config.vocab)))
        entries = [export.entry(name, shape) for name, shape in export.shapes().items()]
        tensor_files.write(folder / "model.safetensors", entries, {}, lambda count: None)
    return {name: str(folder / name) for name in ("config.json", "model.safetensors")}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_dense_families(architecture, tmp_path):
    tensors = gguf_files.tensors()
    size = gguf_files.HIDDEN // gguf_files.HEADS
    for layer in range(gguf_files.LAYERS):
        if architecture == "qwen2":
            for part, rows in (("q", gguf_files.HIDDEN), ("k", size * 2), ("v", size * 2)):
                tensors[f"blk.{layer}.attn_{part}.bias"] = np.arange(rows, dtype=np.float32)
        if architecture == "qwen3":
            for part in ("q", "k"):
                tensors[f"blk.{layer}.attn_{part}_norm.weight"] = np.arange(size, dtype=np.float32)
    files = open_model(
        "gguf", {"m.gguf": str(gguf_files.write(tmp_path / "m.gguf", tensors, architecture=architecture))}
    )
    made = open_model("safetensors", written(files, tmp_path))
    assert replace(made.config, rope=files.config.rope) == files.config
    with Weights(files) as old, Weights(made) as new:
        for name in made.tensors:
            if files.config.rope.interleaved and name.split(".")[-2] in ("q", "k"):
                continue
            assert torch.equal(old.read(name, torch.float32), new.read(name, torch.float32)), name


def test_llama3s_divisors_of_frequencies(tmp_path):
    factors = np.linspace(1, 8, gguf_files.HIDDEN // gguf_files.HEADS // 2, dtype=np.float32)
    content = gguf_files.tensors() | {"rope_freqs.weight": factors}
    files = open_model("gguf", {"m.gguf": str(gguf_files.write(tmp_path / "m.gguf", content))})
    made = open_model("safetensors", written(files, tmp_path))
    assert files.config.rope.kind == "factors"
    assert made.config.rope == Rope(
        files.config.rope.theta, "longrope", original_context=128, short=tuple(factors), long=tuple(factors)
    )


@pytest.mark.slow
def test_gemma3_gives_the_logits_of_transformers(tmp_path):
    from tests.engines.loader.test_gguf_gemma3 import _model, _write

    model = _model()
    files = open_model("gguf", _write(tmp_path / "model.gguf", model))
    check(runner_of(written(files, tmp_path)), reference_of(model))
