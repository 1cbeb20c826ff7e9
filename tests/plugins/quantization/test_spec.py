"""A recipe's fields: what is refused names the field and what to do."""

import jsonschema
import pytest

from engines.protocol import ChildError
from plugins.quantization import spec
from plugins.quantization.optimizer import Quantization
from plugins.quantization.schemes import SCHEMES, SM, gate_of

SMOLLM2 = {"hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64, "task": "generate"}
QWEN = {"hidden": 1536, "ffn": 8960, "heads": 12, "kv_heads": 2, "head_dim": 128, "task": "generate"}
QAT = {"scheme": "w4a16_gptq", "backend": "qat"}
# vllm-project/vllm 13640: 29,568 / 2 ranks = 14,784, which no 128 divides.
QWEN72B = {"hidden": 8192, "ffn": 29568, "heads": 64, "kv_heads": 8, "head_dim": 128, "task": "generate"}


def test_every_scheme_parses_and_says_what_serves_it():
    for scheme in Quantization().schemes():
        assert spec.parse({"scheme": scheme["name"]}).method in scheme["algorithms"]
        assert set(scheme["hardware"]) == set(SM)
        assert all(one["reason"] for one in scheme["hardware"].values()), scheme["name"]
        assert {one["state"] for one in scheme["hardware"].values()} <= {"supported", "slow", "unsupported"}
        assert scheme["gates"][-1]["up_to_parameters"] is None, "the last gate is for any model"
        jsonschema.Draft202012Validator.check_schema(scheme["options_schema"])
        jsonschema.validate({}, scheme["options_schema"])


def test_gates_follow_the_size_of_the_model():
    assert gate_of("w4a16_gptq", 135_000_000).perplexity_ratio > gate_of("w4a16_gptq", 8_000_000_000).perplexity_ratio
    assert gate_of("fp8_dynamic", 70_000_000_000).perplexity_ratio == 1.01


def test_the_form_and_the_parser_agree_on_the_fields():
    schema = Quantization().spec_schema()
    jsonschema.validate({"scheme": "w4a16_gptq", "group_size": 64, "keep": ["model.layers.0.*"]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"scheme": "w5"}, schema)
    defaults = {name: about["default"] for name, about in schema["properties"].items() if "default" in about}
    assert defaults, "the form has defaults"
    parsed = spec.parse({"scheme": "w4a16_gptq"})
    for name, value in defaults.items():
        ours = getattr(parsed, name)
        assert (list(ours) if isinstance(ours, tuple) else ours) == value, name


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"scheme": "fp9"}, "scheme: 'fp9' is not known"),
        ({"scheme": "w4a16_gptq", "groupsize": 64}, "groupsize: there is no such option"),
        ({"scheme": "w4a16_gptq", "group_size": "64"}, "group_size: Expected `int`, got `str`"),
        ({"scheme": "w4a16_gptq", "group_size": 60}, "group_size: it is 60, no multiple of 8"),
        ({"scheme": "w4a16_gptq", "damping": 0}, "damping: it is 0"),
        ({"scheme": "w4a16_gptq", "algorithm": "awq"}, "algorithm: w4a16_gptq is not made by awq"),
        ({"scheme": "fp8_dynamic", "group_size": 128}, "group_size: fp8_dynamic has no groups"),
        ({"scheme": "fp8_dynamic", "budget_bytes": 10**9}, "budget_bytes: fp8_dynamic has a fixed size"),
        ({"scheme": "kv_int8", "backend": "llm_compressor"}, "backend: llm_compressor does not make kv_int8"),
        ({"scheme": "int8_w8a8", "samples": 3}, "samples: it is 3"),
        ({"scheme": "int8_w8a8", "on_fallback": "ignore"}, "on_fallback: 'ignore' is not known"),
        ({"scheme": "int8_w8a8", "backend": "qat"}, "backend: qat does not make int8_w8a8"),
        ({"scheme": "w4a16_gptq", "qat_steps": 5}, "qat_steps: it is of the back end qat"),
        ({**QAT, "kv": "fp8"}, "kv: scales of an FP8 cache are those of the weights before the training"),
        ({**QAT, "embedding": "int8"}, "embedding: qat does not train the embedding"),
        ({**QAT, "qat_rank": 8}, "qat_rank: full has no rank"),
        ({**QAT, "qat_train": "all"}, "qat_train: 'all' is not known"),
        ({**QAT, "qat_learning_rate": 1}, "qat_learning_rate: it is 1"),
        ({**QAT, "samples": 128, "tokens": 32}, "samples: 128 rows of 32 tokens are too few"),
        ({**QAT, "qat_rows": 57, "samples": 64}, "qat_rows: it is 57, and 56 of the 64 rows are trained on"),
        ({**QAT, "algorithm": "autoround"}, "algorithm: autoround is llm_compressor's"),
        ({}, "scheme: Object missing required field `scheme`"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(recipe, message):
    with pytest.raises(ChildError) as caught:
        spec.parse(recipe)
    assert caught.value.code == "bad_recipe"
    assert caught.value.message.startswith(message)


def test_training_needs_rows_whatever_rounds_and_is_offered_where_rounding_loses_much():
    assert spec.parse({**QAT, "algorithm": "rtn"}).needs_data
    assert spec.parse({**QAT, "qat_train": "lora", "qat_rank": 8, "kv": "int8"}).qat_rank == 8
    for scheme in Quantization().schemes():
        offered = "qat" in scheme["options_schema"]["properties"]["backend"]["enum"]
        assert offered == (scheme["name"] in ("w4a16_gptq", "w4a16_awq"))
        assert offered == ("qat_steps" in scheme["options_schema"]["properties"]) == ("qat_steps" in scheme["options"])


def test_a_misspelt_option_is_told_the_right_one():
    with pytest.raises(ChildError) as caught:
        spec.parse({"scheme": "w4a16_gptq", "group_sise": 64})
    assert caught.value.hint == "Did you mean group_size?"


def test_groups_must_divide_what_a_rank_has():
    assert spec.problems({"scheme": "w4a16_gptq", "group_size": 64}, SMOLLM2) == []
    (found,) = spec.problems({"scheme": "w4a16_gptq", "group_size": 128}, SMOLLM2)
    assert (found.field, found.reason) == ("group_size", "128 does not divide hidden: 576 inputs")
    assert "192, 96, 64, 32" in found.hint or "Groups of 192" in found.hint
    (found,) = spec.problems({"scheme": "w4a16_gptq", "group_size": 128}, QWEN72B, tensor_parallel=2)
    assert found.reason == "128 does not divide down_proj: 29,568 / 2 ranks = 14,784 inputs"
    assert "64" in found.hint
    assert spec.problems({"scheme": "w4a16_gptq", "group_size": 64}, QWEN72B, tensor_parallel=2) == []


def test_the_group_that_is_left_open_fits():
    assert spec.group_for([576, 576, 1536]) == 64
    assert spec.group_for([1536, 8960]) == 128
    assert spec.group_for([100]) == 0
    (found,) = spec.problems({"scheme": "w4a16_awq"}, {**QWEN, "ffn": 8968})
    assert found.reason == "no usual group divides all layers"


def test_ranks_that_do_not_share_evenly_and_blocks_that_are_cut():
    (found,) = spec.problems({"scheme": "fp8_dynamic"}, SMOLLM2, tensor_parallel=5)
    assert found.field == "tensor_parallel"
    (found,) = spec.problems({"scheme": "fp8_block"}, {**QWEN, "ffn": 8960}, tensor_parallel=4)
    assert "blocks of 128 do not divide" in found.reason
    assert spec.problems({"scheme": "fp8_block"}, QWEN) == []


def test_rows_are_no_longer_than_the_context():
    model = {**SMOLLM2, "context_length": 256}
    (found,) = spec.problems({"scheme": "w4a16_gptq"}, model)
    assert (found.field, found.reason) == ("tokens", "rows of 512: the model's context is 256")
    assert found.hint == "Give at most 256."
    assert spec.problems({"scheme": "w4a16_gptq", "tokens": 256}, model) == []
    assert spec.problems({"scheme": "fp8_dynamic"}, model) == [], "which reads no rows"
    assert spec.problems({"scheme": "w4a16_gptq"}, {**SMOLLM2, "context_length": 0}) == [], "it is not known"


def test_only_models_that_generate():
    (found,) = spec.problems({"scheme": "fp8_dynamic"}, {**QWEN, "task": "embed"})
    assert "vectors" in found.reason


MODULES = [f"model.layers.{n}.{part}" for n in range(12) for part in ("self_attn.q_proj", "mlp.down_proj")]


def test_kept_layers_by_name_pattern_and_expression():
    assert spec.kept(["model.layers.1.mlp.down_proj"], MODULES) == {"model.layers.1.mlp.down_proj"}
    assert spec.kept(["model.layers.1"], MODULES) == {
        "model.layers.1.mlp.down_proj",
        "model.layers.1.self_attn.q_proj",
    }, "a whole layer, and not layers 10 and 11"
    assert len(spec.kept(["*.down_proj"], MODULES)) == 12
    assert len(spec.kept([r"re:model\.layers\.(0|11)\."], MODULES)) == 4
    assert spec.kept([spec.HEAD], MODULES) == frozenset()
    ours = {name: f"layers.{name.split('.')[2]}.{name.split('.')[-1].removesuffix('_proj')}" for name in MODULES}
    assert spec.kept(["layers.1.down"], MODULES, ours) == {"model.layers.1.mlp.down_proj"}  # as a report names it
    assert len(spec.kept(["layers.1"], MODULES, ours)) == 2


def test_a_kept_layer_that_is_not_there_is_told_those_that_are_close():
    with pytest.raises(ChildError) as caught:
        spec.kept(["lm_head", "model.layers.3.mlp.down_porj"], MODULES)
    assert caught.value.message == "keep[1]: no layer is called 'model.layers.3.mlp.down_porj'"
    assert "model.layers.3.mlp.down_proj" in caught.value.hint
    with pytest.raises(ChildError, match=r"keep\[0\]: '\(' is no regular expression"):
        spec.kept(["re:("], MODULES)


def test_what_needs_data():
    needs = {name for name in SCHEMES if spec.parse({"scheme": name}).needs_data}
    assert needs == {"fp8_static", "int8_w8a8", "w4a16_gptq", "w4a16_awq", "kv_fp8", "mixed"}
    assert needs == {name for name, scheme in SCHEMES.items() if scheme.needs_data}
    assert spec.parse({"scheme": "fp8_dynamic", "kv": "fp8"}).needs_data
    assert not spec.parse({"scheme": "w4a16_gptq", "algorithm": "rtn"}).needs_data
