"""quantization_config in all its forms, as published checkpoints have them, and what of it is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compressed_tensors.utils.match import is_match, match_targets

from engines.native.loader.errors import BadModel
from engines.native.quant.config import quant_config
from engines.native.quant.scheme import ActivationScheme, KvScheme, LinearScheme, WeightScheme

Q0 = "model.layers.0.self_attn.q_proj"
W4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128, "observer": "minmax"}
W8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
A8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def read(**about: Any) -> Any:
    return quant_config({"quantization_config": about})


def group(**fields: Any) -> dict[str, Any]:
    return {"targets": ["Linear"], "weights": W4, "input_activations": None, "output_activations": None} | fields


def compressed(*groups: dict[str, Any], **changes: Any) -> Any:
    about = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {f"group_{n}": one for n, one in enumerate(groups or (group(),))},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "sparsity_config": {},
        "transform_config": {},
    }
    return read(**about | changes)


@pytest.mark.parametrize("about", [None, {}])
def test_none(about: Any) -> None:
    assert quant_config({"quantization_config": about}) is None
    assert quant_config({}) is None


def test_compressed_tensors() -> None:
    made = compressed()
    assert made.method == "compressed-tensors"
    assert made.of(Q0) == LinearScheme(WeightScheme("int", 4, "group", 128))
    assert made.of("lm_head") is None
    assert made.of("model.embed_tokens") is None
    assert made.rule(Q0).layout == "pack-quantized"
    assert made.kv is None


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"num_bits": 8}, WeightScheme("int", 8, "tensor")),
        ({"num_bits": 8, "group_size": -1}, WeightScheme("int", 8, "channel")),
        ({"num_bits": 4, "group_size": 32, "symmetric": False}, WeightScheme("int", 4, "group", 32, symmetric=False)),
        (W4 | {"actorder": "weight"}, WeightScheme("int", 4, "group", 128, actorder="static")),
        (W4 | {"actorder": "static"}, WeightScheme("int", 4, "group", 128, actorder="static")),
        (W4 | {"actorder": True}, WeightScheme("int", 4, "group", 128, actorder="group")),
        (W4 | {"actorder": "group"}, WeightScheme("int", 4, "group", 128, actorder="group")),
    ],
)
def test_weights_of_a_group(weights: dict[str, Any], expected: WeightScheme) -> None:
    assert compressed(group(weights=weights)).of(Q0).weight == expected


@pytest.mark.parametrize(
    ("weights", "inputs", "expected"),
    [
        (
            {"num_bits": 8, "type": "float", "strategy": "channel"}, A8 | {"type": "float"},
            LinearScheme(WeightScheme("float", 8, "channel"), ActivationScheme("float", 8, True, "token")),
        ),
        (
            {"num_bits": 8, "type": "float", "strategy": "tensor"},
            {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False},
            LinearScheme(WeightScheme("float", 8, "tensor"), ActivationScheme("float", 8, False, "tensor")),
        ),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "128x64"},
            {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 64, "dynamic": True},
            LinearScheme(
                WeightScheme("float", 8, "block", block=(128, 64)), ActivationScheme("float", 8, True, "group", 64)
            ),
        ),
        (W8, A8, LinearScheme(WeightScheme("int", 8, "channel"), ActivationScheme("int", 8, True, "token"))),
    ],
)  # fmt: skip
def test_activations(weights: Any, inputs: Any, expected: LinearScheme) -> None:
    made = compressed(group(weights=weights, input_activations=inputs), format="naive-quantized")
    assert made.of(Q0) == expected


def test_a_name_goes_before_a_pattern_and_a_pattern_before_a_class() -> None:
    named = group(targets=[Q0], weights=W4 | {"group_size": 16}, format="pack-quantized")
    pattern = group(targets=[r"re:.*self_attn\..*"], weights=W4 | {"group_size": 32}, format="pack-quantized")
    kind = group(targets=["Linear", "Embedding"], weights=W8, format="int-quantized")
    made = compressed(kind, pattern, named, format="mixed-precision", ignore=["re:.*down_proj", "lm_head"])
    assert made.of(Q0).weight.group == 16
    assert made.of("model.layers.1.self_attn.q_proj").weight.group == 32
    assert made.of("model.layers.1.mlp.up_proj").weight.bits == 8
    assert made.of("model.embed_tokens").weight.bits == 8
    assert made.of("model.layers.1.mlp.down_proj") is None
    assert (made.rule(Q0).layout, made.rule("model.embed_tokens").layout) == ("pack-quantized", "int-quantized")


def test_which_rule_is_taken_is_what_the_library_takes() -> None:
    """match_targets of compressed-tensors 0.19, on modules with these names and classes."""
    targets = ["re:.*proj", "Linear", "re:.*q_proj", Q0, "re:model.layers.1.*", "Embedding"]
    ignore = ["lm_head", "re:.*layers.2.*"]
    groups = [group(targets=[target], weights=W4 | {"group_size": 8 + n}) for n, target in enumerate(targets)]
    made = compressed(*groups, ignore=ignore)
    names = [f"model.layers.{n}.{part}" for n in range(3) for part in ("self_attn.q_proj", "mlp.up_proj", "mlp.gate")]
    for name in [*names, "lm_head", "model.embed_tokens"]:
        module = torch.nn.Embedding(2, 2) if name.endswith("embed_tokens") else torch.nn.Linear(2, 2)
        found = [] if is_match(name, module, ignore) else match_targets(name, module, targets)
        ours = made.of(name)
        assert (ours and ours.weight.group) == (8 + targets.index(found[0]) if found else None), name


def test_keys_and_values() -> None:
    kv = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
    assert compressed(kv_cache_scheme=kv).kv == KvScheme("float", 8, "tensor")
    assert compressed(kv_cache_scheme=kv | {"strategy": "attn_head", "type": "int"}).kv == KvScheme("int", 8, "head")


def test_gptq() -> None:
    about = {"bits": 4, "group_size": 128, "desc_act": True, "sym": True, "damp_percent": 0.1, "lm_head": False}
    made = read(quant_method="gptq", **about)
    assert made.of(Q0) == LinearScheme(WeightScheme("int", 4, "group", 128, actorder="group"))
    assert made.rule(Q0).layout == "gptq"
    whole = read(quant_method="gptq", **about | {"group_size": -1, "sym": False, "checkpoint_format": "gptq_v2"})
    assert whole.of(Q0) == LinearScheme(WeightScheme("int", 4, "channel", symmetric=False))
    assert whole.rule(Q0).layout == "gptq_v2"


def test_gptq_for_modules_of_their_own() -> None:
    dynamic = {
        r"-:.*\.down_proj": {},
        r"+:.*\.layers\.0\..*": {"bits": 8, "group_size": 32, "sym": False},
        r".*\.up_proj": {"group_size": 64},
    }
    made = read(quant_method="gptq", bits=4, group_size=128, sym=True, desc_act=False, dynamic=dynamic)
    assert made.of("model.layers.0.mlp.down_proj") is None
    assert made.of(Q0).weight == WeightScheme("int", 8, "group", 32, symmetric=False)
    assert made.of("model.layers.0.mlp.up_proj").weight.bits == 8
    assert made.of("model.layers.1.mlp.up_proj").weight.group == 64
    assert made.of("model.layers.1.mlp.gate_proj").weight == WeightScheme("int", 4, "group", 128)


def test_awq() -> None:
    made = read(
        quant_method="awq", bits=4, group_size=128, version="gemm", zero_point=True, modules_to_not_convert=["mlp.gate"]
    )
    assert made.of(Q0) == LinearScheme(WeightScheme("int", 4, "group", 128, symmetric=False))
    assert made.of("model.layers.3.mlp.gate") is None


def test_fp8() -> None:
    made = read(
        quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128],
        modules_to_not_convert=["lm_head", "model.layers.0.mlp.gate"],
    )  # fmt: skip
    expected = LinearScheme(
        WeightScheme("float", 8, "block", block=(128, 128)), ActivationScheme("float", 8, True, "group", 128)
    )
    assert made.of(Q0) == expected
    assert made.of("lm_head") is None
    static = read(quant_method="fp8", activation_scheme="static")
    assert static.of(Q0).activations == ActivationScheme("float", 8, False, "tensor")


@pytest.mark.parametrize(
    ("make", "key", "value", "supported"),
    [
        (lambda: read(quant_method="bitsandbytes", load_in_4bit=True), "quant_method", "'bitsandbytes'", "gptq, awq"),
        (lambda: read(load_in_8bit=True), "quant_method", "None", "compressed-tensors"),
        (lambda: read(quant_method="gptq", bits=3, group_size=128), "bits", "3", "4 or 8"),
        (lambda: read(quant_method="gptq", bits=2), "bits", "2", "4 or 8"),
        (lambda: read(quant_method="gptq", bits=4, group_size=0), "group_size", "0", "whole number"),
        (
            lambda: read(quant_method="gptq", bits=4, checkpoint_format="marlin"),
            "checkpoint_format", "'marlin'", "gptq_v2",
        ),
        (
            lambda: read(quant_method="gptq", bits=4, dynamic={"+:.*up_proj": {"bits": 3}}),
            "dynamic.+:.*up_proj.bits", "3", "4 or 8",
        ),
        (lambda: read(quant_method="gptq", bits=4, dynamic={"+:(": {}}), "dynamic.+:(", "'re:('", "pattern"),
        (lambda: read(quant_method="gptq", bits=4, dynamic={"+:a": [8]}), "dynamic.+:a", "[8]", "an object"),
        (lambda: read(quant_method="gptq", bits=4, dynamic=["-:a"]), "dynamic", "['-:a']", "an object"),
        (lambda: read(quant_method="awq", bits=3), "bits", "3", "4"),
        (lambda: read(quant_method="awq", bits=4, version="gemv"), "version", "'gemv'", "gemm"),
        (lambda: read(quant_method="awq", bits=4, zero_point=False), "zero_point", "False", "True"),
        (lambda: read(quant_method="fp8", fmt="e5m2"), "fmt", "'e5m2'", "e4m3"),
        (lambda: read(quant_method="fp8", weight_block_size=[128]), "weight_block_size", "[128]", "[128, 128]"),
        (
            lambda: compressed(sparsity_config={"format": "sparse-24-bitmask"}),
            "sparsity_config", "sparse-24-bitmask", "without sparsity",
        ),
        (lambda: compressed(transform_config={"config_groups": {"u": {}}}), "transform_config", "'u'", "transforms"),
        (lambda: compressed(quantization_status="frozen"), "quantization_status", "'frozen'", "compressed"),
        (lambda: compressed(format="marlin-24"), "format", "'marlin-24'", "pack-quantized"),
        (lambda: compressed(group(format="nvfp4-pack-quantized")), "config_groups.group_0.format", "nvfp4", "naive"),
        (lambda: compressed(format="mixed-precision"), "format", "'mixed-precision'", "pack-quantized"),
        (
            lambda: compressed(group(weights=W4 | {"num_bits": 3})),
            "config_groups.group_0.weights.num_bits", "3", "4 or 8",
        ),
        (
            lambda: compressed(group(weights={"num_bits": 4, "type": "float"})),
            "config_groups.group_0.weights.num_bits", "4", "8",
        ),
        (
            lambda: compressed(group(weights=W4 | {"group_size": None})),
            "config_groups.group_0.weights.group_size", "None", "positive",
        ),
        (
            lambda: compressed(group(input_activations=A8 | {"symmetric": False})),
            "config_groups.group_0.input_activations.symmetric", "False", "True",
        ),
        (
            lambda: compressed(group(input_activations=A8 | {"dynamic": "local"})),
            "config_groups.group_0.input_activations.dynamic", "'local'", "True or False",
        ),
        (
            lambda: compressed(group(input_activations=A8 | {"dynamic": False})),
            "config_groups.group_0.input_activations.strategy", "'token'", "tensor",
        ),
        (
            lambda: compressed(group(output_activations=A8)),
            "config_groups.group_0.output_activations", "'num_bits'", "none",
        ),
        (lambda: compressed(group(weights="int8")), "config_groups.group_0.weights", "'int8'", "an object"),
        (
            lambda: compressed(group(weights=None, input_activations=A8)),
            "config_groups.group_0.weights", "None", "4 or 8",
        ),
        (lambda: compressed(config_groups=[group()]), "config_groups", "targets", "an object of groups"),
        (lambda: compressed(group(targets=[])), "config_groups.group_0.targets", "[]", "names"),
        (lambda: compressed(config_groups={"W8A8": ["Linear"]}), "config_groups.W8A8", "['Linear']", "written out"),
        (lambda: compressed(ignore=["re:("]), "ignore", "'re:('", "pattern"),
        (lambda: compressed(kv_cache_scheme={"num_bits": 4}), "kv_cache_scheme.num_bits", "4", "8"),
    ],
)  # fmt: skip
def test_what_is_refused_names_key_value_and_what_is_served(make: Any, key: str, value: str, supported: str) -> None:
    with pytest.raises(BadModel) as caught:
        make()
    error = caught.value
    assert error.code == "unknown_type"
    assert f"quantization_config.{key} is " in error.message
    assert value in error.message
    assert supported in error.hint


def test_no_object() -> None:
    with pytest.raises(BadModel, match="quantization_config is 'fp8'"):
        quant_config({"quantization_config": "fp8"})
