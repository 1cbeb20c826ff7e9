"""Smoothing moves ranges between neighbours and changes no output: shown with the quantization left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engines.native.config import EngineConfig
from engines.native.layers.linear import TransposedLinear
from engines.native.loader.model_files import open_model
from engines.native.models import build
from engines.native.models.smooth import _factors
from engines.native.request import SamplingParams
from engines.native.runner import runner_for
from engines.native.step import StepPlan


@pytest.mark.parametrize(
    ("kind", "tied"),
    [("llama", True), ("qwen2", False), ("qwen3", False), ("gemma2", True), ("cohere", True), ("glm4", False)],
)
def test_outputs_stay_the_same(tmp_path, monkeypatch, kind, tied):
    torch.manual_seed(4)
    shape = AutoConfig.for_model(
        kind,
        vocab_size=80,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        pad_token_id=None,
        attention_bias=kind == "llama",
        mlp_bias=kind == "llama",
    )
    model = AutoModelForCausalLM.from_config(shape, dtype=torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.1, std=0.3)
    model.save_pretrained(tmp_path)
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    plain, smoothed = (_scores(paths, dtype, monkeypatch) for dtype in ("float32", "int8"))
    assert np.isfinite(plain).all()
    # The embedding table of int8 is float16; nothing else may differ.
    np.testing.assert_allclose(smoothed, plain, atol=0.02)


def _scores(paths: dict[str, str], dtype: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Log-probabilities of a prompt's tokens."""
    monkeypatch.setattr(build, "method_for", lambda *_, **__: TransposedLinear)
    config = EngineConfig(format="safetensors", paths=paths, device="cpu", dtype=dtype, max_num_seqs=2)
    runner = runner_for(open_model("safetensors", paths), config)
    ids = list(range(3, 33))
    runner.add(0, ids, SamplingParams(prompt_logprobs=0), len(ids))
    rows, start, count = (np.array([value], np.int32) for value in (0, 0, len(ids)))
    plan = StepPlan(rows, start, count, np.array([True]), [(0, 0, [1, 2])])
    return runner.launch(plan).wait().prompt_logprobs[0][1]


def test_factors_even_out_both_sides():
    activations, weights = torch.tensor([100.0, 1.0]), torch.tensor([1.0, 1.0])
    factors = _factors(activations, weights)
    assert (activations / factors).max() / (activations / factors).min() == pytest.approx(10, rel=1e-4)
    assert (weights * factors).max() / (weights * factors).min() == pytest.approx(10, rel=1e-4)
