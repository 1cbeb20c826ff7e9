"""A version that a job made answers the same in transformers (with compressed-tensors) and in our engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.runner import runner_for
from tests.engines.models import harness
from tests.plugins.quantization.quantized_for_tests import LAYERS, paths_of, run, spec_of, write_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "base")


def ours(folder, ids):
    """float32 logits at each position, [tokens, vocab]; weights as the files say, activations in float32."""
    config = EngineConfig(
        format="safetensors", paths=paths_of(folder), device="cpu", dtype="float32", max_num_seqs=4,
        max_batched_tokens=128, block_size=16, quantized_weights="dequantized",
    )  # fmt: skip
    runner = runner_for(open_model("safetensors", paths_of(folder)), config)
    harness.add(runner, 0, ids)
    (found,) = harness.logits_of(runner, [(0, 0, len(ids))], {0: [1, 2]})
    return found


def theirs(folder, ids):
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for module in loaded.modules():
        module.quantization_enabled = False  # activations stay floats: the weights are what is compared
    with torch.inference_mode():
        return loaded(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize(
    "recipe",
    [
        {"scheme": "fp8_dynamic"},
        {"scheme": "fp8_static"},
        {"scheme": "int8_w8a8", "algorithm": "smoothquant_gptq"},
        {"scheme": "w4a16_gptq", "group_size": 32},
        {"scheme": "int8_weight_only", "keep": ["lm_head", "model.layers.1"]},
    ],
    ids=lambda recipe: recipe["scheme"],
)
def test_same_answers_in_transformers_and_in_ours(model, tmp_path, recipe: dict[str, Any]) -> None:
    run(spec_of(model, tmp_path, **recipe))
    ids = list(range(40, 64))
    expected, base = theirs(tmp_path / "version", ids), theirs(model, ids)
    torch.testing.assert_close(ours(tmp_path / "version", ids)[-1], expected[-1], atol=2e-4, rtol=2e-4)
    assert not torch.equal(expected, base), "it is another model than the one it was made of"
    assert (expected - base).abs().mean() < 0.5 * base.std(), "and much like it; random weights in 4 bits lose a lot"
    text = "a text"
    assert AutoTokenizer.from_pretrained(tmp_path / "version")(text) == AutoTokenizer.from_pretrained(model)(text)


def test_a_mixed_version_says_each_modules_scheme(model, tmp_path) -> None:
    recipe = {"scheme": "mixed", "samples": 32, "tokens": 64, "group_size": 32}
    report, _ = run(spec_of(model, tmp_path, **recipe))
    assert len(report["mixed"]["plans"]) >= 1
    assert report["size"]["after"] <= report["mixed"]["budget_bytes"] + 300_000  # float32 here: norms and the table
    found = set(report["layers_by_scheme"])
    assert {"int4 group 32", "int8 per channel"} <= found | {"16 bits"}
    assert sum(report["layers_by_scheme"].values()) == 4 * LAYERS
    config = json.loads((tmp_path / "version/config.json").read_text())["quantization_config"]
    named = [name for group in config["config_groups"].values() for name in group["targets"]]
    assert len(named) == len(set(named))
    ids = list(range(40, 64))
    torch.testing.assert_close(
        ours(tmp_path / "version", ids)[-1], theirs(tmp_path / "version", ids)[-1], atol=2e-4, rtol=2e-4
    )
