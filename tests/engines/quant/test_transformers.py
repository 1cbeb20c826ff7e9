"""A checkpoint written by compressed-tensors' ModelCompressor, as llm-compressor does it: transformers and the engine
give the same logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors.model_compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationScheme,
    QuantizationStatus,
    apply_quantization_config,
)
from transformers import AutoModelForCausalLM

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.runner import runner_for
from tests.engines.models import harness
from tests.engines.quant.oracle import qparams

W4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
W8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
TOKENS = {"num_bits": 8, "strategy": "token", "dynamic": True}


def group(targets: list[str], weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"targets": targets, "weights": weights, "input_activations": inputs}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "layouts"),
    [
        ([group(["Linear"], W4)], {"pack-quantized"}),
        ([group(["Linear"], W8, TOKENS)], {"int-quantized"}),
        (
            [group([r"re:.*mlp\..*"], W8), group([r"re:.*self_attn\..*"], FP8, TOKENS | {"type": "float"})],
            {"pack-quantized", "float-quantized"},
        ),
        ([group(["Embedding"], W8), group(["Linear"], W4 | {"symmetric": False})], {"pack-quantized"}),
    ],
    ids=str,
)
def test_same_logits(tmp_path: Path, groups: list[dict[str, Any]], layouts: set[str]) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    model = harness.transformers_model("llama", "compressed", **sizes)
    schemes = {f"group_{number}": QuantizationScheme(**one) for number, one in enumerate(groups)}
    apply_quantization_config(model, QuantizationConfig(config_groups=schemes, ignore=["lm_head"]))
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is not None:
            scales, zeros = qparams(module.weight.detach(), scheme.weights)
            module.weight_scale.data.copy_(scales)
            module.weight_zero_point.data.copy_(zeros)
            module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(tmp_path)
    compressor.update_config(str(tmp_path))

    # transformers 5.23 loads neither packed zeros (it expects them unpacked) nor embeddings of compressed-tensors:
    # there the model that was written stands for what is in the file.
    reads = all(one["weights"].get("symmetric", True) and one["targets"] != ["Embedding"] for one in groups)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval() if reads else model
    for module in theirs.modules():
        module.quantization_enabled = False  # activations stay floats: the weights are what is compared
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    files = open_model("safetensors", paths)
    assert {stored.layout for stored in files.quantized.values()} == layouts
    assert len(files.quantized) == 21 + any(one["targets"] == ["Embedding"] for one in groups)
    ids = harness.token_ids(3, 12)
    expected = harness.reference_of(theirs)(ids)
    config = EngineConfig(
        format="safetensors", paths=paths, device="cpu", dtype="float32", max_num_seqs=4, max_batched_tokens=256,
        block_size=8, quantized_weights="dequantized",
    )  # fmt: skip
    runner = runner_for(files, config)
    harness.add(runner, 0, ids)
    (ours,) = harness.logits_of(runner, [(0, 0, len(ids))], {0: [1, 2]})
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.1
