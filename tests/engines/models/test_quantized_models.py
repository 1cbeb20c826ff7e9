"""Whole models from quantized checkpoints: what is served is what the weights stand for, whatever an architecture works
into them, and what can't be served so is refused, or dequantized and counted."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engines.native.config import ConfigError, EngineConfig
from engines.native.layers.quantized import DEQUANTIZED
from engines.native.loader.model_files import open_model
from engines.native.offline import Offline
from engines.native.quant.packing import layout_for, packed
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from evaluation.benchmarks.quantized_folder import rounded
from tests.engines import gguf_files
from tests.engines.models import harness
from tests.engines.models.test_mixtures import LATENT

INT8 = LinearScheme(WeightScheme("int", 8, "channel"))
W8A8 = LinearScheme(WeightScheme("int", 8, "channel"), ActivationScheme("int", 8))
INT4 = LinearScheme(WeightScheme("int", 4, "group", 16))
FP8 = LinearScheme(WeightScheme("float", 8, "channel"))


def quantized(
    model: torch.nn.Module, folder: Path, schemes: dict[str, LinearScheme]
) -> tuple[dict[str, str], harness.Reference]:
    """Writes `model` with some matrices quantized: its files, and the model of the values that these stand for.
    schemes: end of a module's name, or "_proj" for all linear layers → scheme."""
    plain = folder / "plain"
    harness.saved(model, plain)
    state = load_file(plain / "model.safetensors")
    values, made = dict(state), dict(state)
    groups: dict[str, Any] = {}
    for number, (ending, scheme) in enumerate(schemes.items()):
        layout = layout_for(scheme)
        for name in [name for name in state if name.endswith(f"{ending}.weight")]:
            module, weight = name.removesuffix(".weight"), rounded(state[name], scheme.weight)
            values[name] = weight.dequantize(torch.float32)
            del made[name]
            made |= {f"{module}.{kind}": part for kind, part in packed(weight, layout).items()}
        groups[f"group_{number}"] = _group(ending, scheme, layout)
    save_file(values, plain / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    layouts = {group["format"] for group in groups.values()}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": layouts.pop() if len(layouts) == 1 else "mixed-precision",
        "config_groups": groups,
        "ignore": ["lm_head"],
    }
    paths = harness.written(folder, config, made)
    reference = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32).eval()
    return {name: path for name, path in paths.items() if name != "plain"}, harness.reference_of(reference)


def _group(ending: str, scheme: LinearScheme, layout: str) -> dict[str, Any]:
    weight, inputs = scheme.weight, None
    if scheme.activations is not None:
        inputs = {"num_bits": 8, "type": scheme.activations.kind, "strategy": "token", "dynamic": True}
    args = {
        "num_bits": weight.bits,
        "type": weight.kind,
        "strategy": weight.strategy,
        "group_size": weight.group or None,
    }
    targets = [f"re:.*{ending}$"]
    return {"targets": targets, "weights": args, "input_activations": inputs, "format": layout}


def _runner(paths: dict[str, str], format: str = "safetensors", **fields: Any) -> ModelRunner:
    config = EngineConfig(
        format=format, paths=paths, device="cpu", max_num_seqs=4, max_batched_tokens=256, block_size=8, **fields
    )
    return runner_for(open_model(format, paths), config)


@pytest.mark.parametrize(
    "kind",
    [
        "llama",
        "qwen2",  # biases
        "qwen3",  # norms of heads
        "cohere",  # LayerNorm made RMSNorm, one norm for attention and MLP, logits scaled, interleaved pairs
        "glm",  # a part of the head turns, in interleaved pairs; gate and up in one tensor
        "phi3",  # q, k and v in one tensor
        "gemma2",
    ],
)
def test_every_architecture_gives_what_its_weights_stand_for(tmp_path, kind):
    model = harness.transformers_model(kind, kind)
    paths, wanted = quantized(model, tmp_path, {"_proj": INT8})
    runner = _runner(paths)
    assert runner.sizes.dtype == "float32"
    facts = runner.model.weights.quantization
    assert facts["methods"] == {"float16": 4 * 3}  # qkv, o, gate_up, down of three layers: exact for 8 bits
    assert facts["dequantized"] == 0
    harness.check(runner, wanted, 2e-4)


def test_mixed_precision_keeps_each_part_as_it_is(tmp_path):
    model = harness.transformers_model("llama", "mixed")
    schemes = {"q_proj": INT8, "k_proj": INT4, "down_proj": FP8, "gate_proj": INT4}
    paths, wanted = quantized(model, tmp_path, schemes)
    runner = _runner(paths)
    assert runner.model.weights.quantization["methods"] == {"float16": 4 * 3}  # q | k and no v; gate and no up; down
    harness.check(runner, wanted, 1e-2)


def test_greedy_tokens_equal_those_of_the_dequantized_model(tmp_path):
    paths, _ = quantized(harness.transformers_model("llama", "greedy"), tmp_path, {"_proj": INT4})
    prompts = [harness.token_ids(seed, length) for seed, length in enumerate((5, 17, 30))]
    answers = []
    for choice in ("kept", "dequantized"):
        config = EngineConfig(
            format="safetensors", paths=paths, device="cpu", dtype="float32", quantized_weights=choice, max_num_seqs=4,
        )  # fmt: skip
        found = Offline(config).generate(prompts, SamplingParams(temperature=0, max_tokens=16))
        answers.append([one.token_ids for one in found])
    assert answers[0] == answers[1]


def test_activations_are_quantized_as_the_checkpoint_asks(tmp_path):
    model = harness.transformers_model("llama", "w8a8")
    paths, reference = quantized(model, tmp_path, {"_proj": W8A8})
    runner = _runner(paths)
    assert runner.model.weights.quantization["methods"] == {"int8_exact": 4 * 3}
    ids = harness.token_ids(3, 40)
    harness.add(runner, 0, ids)
    ours, wanted = harness.logits_of(runner, [(0, 0, 40)], {0: [1, 2, 3, 4, 5]})[0], reference(ids)
    error = ((ours - wanted).norm() / wanted.norm()).item()
    assert 1e-3 < error < 0.05  # they are quantized, and no more than that


def test_experts_and_latent_attention_are_dequantized_and_counted(tmp_path, caplog):
    model = harness.transformers_model(
        "qwen3_moe", "moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, head_dim=8,
        decoder_sparse_step=1, mlp_only_layers=[],
    )  # fmt: skip
    paths, wanted = quantized(model, tmp_path, {"_proj": INT8})
    with caplog.at_level(logging.WARNING):
        runner = _runner(paths)
    facts = runner.model.weights.quantization
    assert facts["dequantized"] == facts["methods"][DEQUANTIZED] == 3 * 4 * 3
    assert "experts share one float product" in caplog.text
    files = open_model("safetensors", paths)
    experts = 3 * 4 * 3 * 32 * runner.config.hidden
    assert files.quantized_size()[0] == sum(math.prod(each.shape) for each in files.quantized.values()) - experts > 0
    harness.check(runner, wanted, 2e-4)


@pytest.mark.parametrize(("kind", "method", "error"), [("Q4_1", "int4_packed", 0.03), ("Q8_0", "float16", 5e-3)])
def test_blocks_of_gguf_are_kept_where_that_is_asked_for(tmp_path, kind, method, error):
    """Table and tied head too: in this file they are blocks like the rest."""
    blocks = gguf.GGMLQuantizationType[kind]
    paths = {"model.gguf": str(gguf_files.write(tmp_path / "model.gguf", blocks=blocks))}
    assert _runner(paths, "gguf").sizes.dtype == "int8"  # auto: as ever
    plain = _runner(paths, "gguf", dtype="float32")
    assert plain.model.weights.quantization == {}
    kept = _runner(paths, "gguf", quantized_weights="kept")
    assert kept.sizes.dtype == "float32"
    assert kept.model.weights.quantization["methods"] == {method: 4 * gguf_files.LAYERS + 1}
    ids = [3, 60, 7, 7, 21, 40, 1, 0, 33, 9]
    logits = []
    for runner in (plain, kept):
        harness.add(runner, 0, ids)
        logits.append(harness.logits_of(runner, [(0, 0, len(ids))], {0: [1, 2]})[0])
    assert (logits[1] - logits[0]).norm() / logits[0].norm() < error
    files = open_model("gguf", paths)
    assert files.quantized_size("cpu") == files.quantized_size() > (0, 0) == files.quantized_size("cuda")
    assert torch.equal(kept.model.weights.embed(torch.tensor(ids)), plain.model.weights.embed(torch.tensor(ids)))


@pytest.mark.parametrize("rank", [None, 28])
def test_what_latent_attention_takes_apart_is_counted_in_full(tmp_path, rank):
    model = harness.transformers_model("deepseek_v2", "latent", **LATENT | {"q_lora_rank": rank})
    paths, _ = quantized(model, tmp_path, {"_proj": INT8, "_proj_with_mqa": INT8})
    files = open_model("safetensors", paths)
    left = {name.split(".")[-2] for name in files.quantized if files._keeps(name, "")}
    assert left == {"o", "gate", "up", "down"} | ({"q_a"} if rank else set())
    assert {"kv_a", "kv_b", "q_b" if rank else "q"} <= {name.split(".")[-2] for name in files.quantized}


def test_what_cannot_be_is_refused_by_name(tmp_path):
    paths, _ = quantized(harness.transformers_model("llama", "refused"), tmp_path, {"_proj": INT8})
    with pytest.raises(ConfigError, match="dtype is 'int8', but the weights of this version are quantized already"):
        _runner(paths, dtype="int8")
    with pytest.raises(ConfigError, match="offload_layers is 3, but quantized weights are not brought in parts"):
        _runner(paths, offload_layers=3)
    again = _runner(paths, dtype="int8", quantized_weights="dequantized")
    assert (again.sizes.dtype, again.model.weights.quantization) == ("int8", {})
