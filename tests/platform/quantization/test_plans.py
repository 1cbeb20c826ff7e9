"""What is said before anything starts: sizes, and each obstacle with field, reason and proposal."""

from __future__ import annotations

import math

import pytest
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.quantization import devices, plans, schemes, sizes
from tursiops.quantization.asked import Calibration
from tursiops.quantization.models import Quantization
from tursiops.registry.models import VersionState

from engines.api import ModelShape
from tests import factories
from tests.platform.quantization.conftest import ALICE, asked, choice

pytestmark = pytest.mark.django_db
LLAMA_8B = {
    "architecture": "llama",
    "layers": 32,
    "hidden": 4096,
    "ffn": 14336,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 128_256,
    "context_length": 131_072,
    "parameters": 8_030_261_248,
    "tied_embeddings": False,
}


@pytest.fixture
def large(team):
    return factories.make_version(
        team=team, format="safetensors", quantization="", shape=LLAMA_8B, size_bytes=16 * 10**9
    )


def planned(base, *choices, **fields):
    return plans.plan(base, asked(*choices, **fields))["plans"]


def errors(plan) -> list[tuple[str, str]]:
    return [(item["code"], item["field"]) for item in plan["problems"] if item["severity"] == "error"]


def test_sizes_follow_the_scheme_the_group_and_what_is_kept(large):
    whole = 2 * LLAMA_8B["parameters"]
    linear = sum(sizes.modules(ModelShape(**LLAMA_8B)).values())
    assert linear == 6_979_321_856
    fp8, four, grouped, kept, table = planned(
        large,
        choice("fp8_dynamic"),
        choice("w4a16_gptq"),
        choice("w4a16_gptq", options={"group_size": 32}),
        choice("w4a16_gptq", keep=["*.down_proj"]),
        choice("embedding_int8"),
        device="h200",
    )
    assert fp8["size_bytes"] == whole - linear
    assert four["size_bytes"] == whole - linear * 2 + linear * 4.125 / 8
    assert (four["bits"], grouped["bits"]) == (4.125, 4.5)
    assert grouped["size_bytes"] == whole - linear * 2 + linear * 4.5 / 8
    down = 32 * 4096 * 14336
    assert kept["size_bytes"] == pytest.approx(four["size_bytes"] + down * (2 - 4.125 / 8), abs=1)
    rows = 128_256
    assert table["size_bytes"] == whole - rows * 4096 + 2 * rows
    assert four["base_bytes"] == large.size_bytes
    assert four["memory_bytes"] < fp8["memory_bytes"] < whole
    assert [each["problems"] for each in (fp8, four, grouped, kept)] == [[], [], [], []]


def test_a_group_that_does_not_divide_a_shard_is_refused_with_a_proposal(team):
    """vllm's issue 13640: in/TP = 14784."""
    shape = {**LLAMA_8B, "ffn": 29_568, "hidden": 8192, "heads": 64, "parameters": 0}
    base = factories.make_version(team=team, shape=shape)
    (one,) = planned(base, choice("w4a16_gptq", options={"group_size": 128}), device="h200", tp=2)
    (problem,) = one["problems"]
    assert (problem["code"], problem["field"], problem["severity"]) == ("tp_does_not_divide", "tp", "error")
    assert "14,784" in problem["message"]
    assert "groups of 64" in problem["proposal"]
    assert planned(base, choice("w4a16_gptq"), device="h200", tp=2)[0]["problems"] == []  # 64 is found by itself


def test_heads_that_do_not_split_are_refused(team):
    base = factories.make_version(team=team)  # SmolLM2: 9 heads
    (one,) = planned(base, choice("fp8_dynamic"), device="h200", tp=2)
    assert ("tp_does_not_divide", "tp") in errors(one)
    assert any("9 attention heads" in problem["message"] for problem in one["problems"])


def test_a_group_that_divides_no_layer_names_option_and_groups_that_do(team):
    base = factories.make_version(team=team)
    (one,) = planned(base, choice("w4a16_gptq", options={"group_size": 128}))
    assert errors(one) == [("does_not_fit", "schemes.0.options.group_size")]
    problem = next(item for item in one["problems"] if item["severity"] == "error")
    assert "576" in problem["message"]
    assert "64" in problem["proposal"]


def test_a_device_that_can_t_serve_it_is_an_error_and_a_slow_one_a_warning(large):
    on_a100, on_cpu = (planned(large, choice("fp8_dynamic"), device=key)[0] for key in ("a100", "cpu"))
    assert [(item["code"], item["severity"]) for item in on_a100["problems"]] == [("slow_device", "warning")]
    assert "INT8" in on_a100["problems"][0]["proposal"]
    assert on_cpu["support"]["level"] == "slow"
    with pytest.raises(TursiopsError, match="device: 'h300' is not known here"):
        asked(choice("fp8_dynamic"), device="h300")


def test_unsupported_is_refused_before_a_job_is_queued(large, monkeypatch):
    monkeypatch.setitem(devices.COMPUTE_CAPABILITY, "a10", "sm75")
    with pytest.raises(TursiopsError) as refused:
        plans.require_plan(large, asked(choice("int8_w8a8"), device="a10"))
    assert refused.value.code == "unsupported_device"
    assert "compute capability 8.0" in refused.value.fields["device"][0]
    assert not Quantization.objects.exists()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"group_sise": 64}, "schemes.0.options"),
        ({"damping": 5}, "schemes.0.options.damping"),
        ({"algorithm": "awq"}, "schemes.0.options.algorithm"),
        ({"samples": 64}, "schemes.0.options.samples"),
        ({"scheme": "fp8_dynamic"}, "schemes.0.options.scheme"),
        ({"group_size": "abc"}, "schemes.0.options.group_size"),
        ({"budget_bytes": "x"}, "schemes.0.options.budget_bytes"),
        ({"keep": [5]}, "schemes.0.options.keep.0"),
        ({"keep": 5}, "schemes.0.options.keep"),
        ({"keep": ["*"] * 101}, "schemes.0.options.keep"),
        ({"keep": ["lm_head", "k" * 201]}, "schemes.0.options.keep.1"),
    ],
)
def test_options_are_checked_field_by_field(large, options, field):
    (one,) = planned(large, choice("w4a16_gptq", options=options, keep=["*.down_proj"]), device="h200")
    assert [place for _, place in errors(one)] == [field]
    assert one["size_bytes"] > 0


def test_options_of_an_optimizer_with_an_open_schema_are_checked_where_they_are_read(large, copies):
    (one,) = planned(large, choice("copy", options={"keep": [5]}))
    assert errors(one) == [("bad_option", "schemes.0.options.keep.0")]


def test_scheme_and_rows_are_those_that_were_asked_for():
    made = choice("w4a16_gptq", options={"scheme": "mixed", "samples": 4096, "seed": 1}).recipe(Calibration())
    assert made == {"scheme": "w4a16_gptq", "samples": 128, "tokens": 512, "seed": 1}


def test_a_regular_expression_is_left_to_the_child(large):
    """`re:(.+)+!` takes longer than anyone waits for."""
    one, whole = planned(large, choice("w4a16_gptq", keep=["re:(.+)+!"]), choice("w4a16_gptq"), device="h200")
    assert (one["problems"], one["size_bytes"]) == ([], whole["size_bytes"])


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ({"perplexity": 3.0}, "unknown_figure"),
        ({"same_top": 95.0}, "bad_limit"),
        ({"perplexity_ratio": 0.04}, "bad_limit"),
        ({"kl": math.nan}, "bad_limit"),
        ({"fallbacks": math.inf}, "bad_limit"),
    ],
)
def test_limits_that_mean_nothing_are_refused(large, gate, code):
    (one,) = planned(large, choice("fp8_dynamic", gate=gate), device="h200")
    assert errors(one) == [(code, "schemes.0.gate")]


def test_limits_are_those_of_the_scheme_for_that_size(large, team):
    small = factories.make_version(team=team)
    assert planned(large, choice("fp8_dynamic"), device="h200")[0]["gate"] == {"perplexity_ratio": 1.01}
    assert planned(small, choice("fp8_dynamic"), device="h200")[0]["gate"] == {"perplexity_ratio": 1.03}


def test_too_little_text_is_refused_with_numbers(large, team):
    corpus = factories.make_corpus(team)
    corpus.blob.size = 30_000
    wanted = asked(choice("w4a16_awq"), device="h200", source="corpus", corpus=corpus)
    told = plans.plan(large, wanted)["calibration"]
    assert (told["samples"], told["tokens"]) == (19, 19 * 512)
    (problem,) = told["problems"]
    assert "enough for about 19 rows" in problem["message"]
    with pytest.raises(TursiopsError) as refused:
        plans.require_plan(large, wanted)
    assert "calibration.corpus" in refused.value.fields
    assert plans.plan(large, asked(choice("fp8_dynamic"), device="h200"))["calibration"] is None


def test_more_rows_than_the_built_in_text_has_are_refused_before_the_job_starts(large):
    wanted = asked(choice("fp8_dynamic"), choice("w4a16_gptq"), device="h200", samples=4096)
    (problem,) = plans.plan(large, wanted)["calibration"]["problems"]
    assert problem["message"].startswith("The built-in text has 469 KiB, enough for about 312 rows of 512 tokens")
    with pytest.raises(TursiopsError) as refused:
        plans.require_plan(large, wanted)
    assert list(refused.value.fields) == ["calibration.samples"]
    assert plans.plan(large, asked(choice("w4a16_gptq"), device="h200", samples=128))["calibration"]["problems"] == []


@pytest.mark.parametrize(
    ("scheme", "options", "needs"),
    [
        ("fp8_dynamic", {}, False),
        ("fp8_dynamic", {"kv": "fp8"}, True),
        ("fp8_static", {"algorithm": "rtn"}, True),
        ("kv_int8", {}, False),
        ("w4a16_gptq", {"algorithm": "rtn"}, False),
        ("w4a16_gptq", {"algorithm": "awq"}, True),  # refused by name; the scheme's own answer
    ],
)
def test_the_plan_and_the_job_agree_on_who_needs_data(large, scheme, options, needs):
    plan = plans.plan(large, asked(choice(scheme, options=options), device="h200"))
    assert (plan["calibration"] is not None) == needs


def test_too_few_rows_are_said_where_they_are_asked_for(large):
    (one,) = planned(large, choice("w4a16_gptq"), device="h200", samples=3)
    assert errors(one) == [("bad_option", "calibration.samples")]


def test_time_is_that_of_the_team_s_last_job_of_the_scheme(large, team, other_team):
    assert planned(large, choice("w4a16_gptq"), device="h200")[0]["seconds"] is None
    fields = {"scheme": "w4a16_gptq", "report": {"seconds": 60.0}, "figures": {"seconds": 120.0}}
    factories.make_quantization(base=factories.make_version(team=team), **fields)
    factories.make_quantization(other_team, **{**fields, "report": {"seconds": 1.0}})
    per_parameter = 120.0 / factories.SMOLLM2_SHAPE["parameters"]
    (one,) = planned(large, choice("w4a16_gptq"), device="h200")
    assert one["seconds"] == pytest.approx(per_parameter * LLAMA_8B["parameters"], abs=0.1)


def test_a_node_without_room_is_said(large):
    factories.make_node(disk_free=10**9, memory_available=10**9)
    (one,) = planned(large, choice("w4a16_gptq"), device="h200")
    assert [(item["code"], item["severity"]) for item in one["problems"]] == [
        ("disk_full", "error"),
        ("little_memory", "warning"),
    ]


def test_what_can_t_be_a_base(team):
    wanted = asked(choice("fp8_dynamic"))
    with pytest.raises(Conflict, match="is failed"):
        plans.plan(factories.make_version(team=team, state=VersionState.FAILED), wanted)
    with pytest.raises(TursiopsError, match="vectors or scores"):
        plans.plan(factories.make_version(team=team, shape={"task": "embed"}), wanted)
    shape = {**factories.SMOLLM2_SHAPE, "quantized_parameters": 10**8}
    with pytest.raises(TursiopsError, match="quantized already") as refused:
        plans.plan(factories.make_version(team=team, format="safetensors", shape=shape), wanted)
    assert refused.value.code == "already_quantized"


def test_every_scheme_tells_what_each_device_does_with_it():
    listed = schemes.listed()
    keys = [device.key for device in devices.devices()]
    assert {"fp8_dynamic", "int8_w8a8", "w4a16_gptq", "w4a16_awq", "kv_fp8", "mixed"} <= {one["name"] for one in listed}
    for one in listed:
        assert [item["device"] for item in one["support"]] == keys
        assert all(item["level"] == "supported" or item["reason"] for item in one["support"]), one["name"]
        assert one["explanation"].endswith(".")
        assert one["options_schema"]["properties"]


def test_gpus_of_nodes_come_first():
    node = factories.make_node()
    node.gpus.create(index=0, uuid="GPU-1", name="NVIDIA H200", memory_total=150 * 10**9)
    assert [(device.key, device.present) for device in devices.devices()][:2] == [("cpu", True), ("h200", True)]


def test_all_are_started_or_none(team):
    from tursiops.quantization import services

    base = factories.make_version(team=team)
    wanted = asked(choice("fp8_dynamic"), choice("w4a16_gptq", options={"group_size": 128}))
    with pytest.raises(TursiopsError) as refused:
        services.quantize(base=base, actor=ALICE, asked=wanted)
    assert set(refused.value.fields) == {"schemes.1.options.group_size"}
    assert base.model.versions.count() == 1


def test_files_that_grow_are_explained_where_the_base_is_in_blocks_already(team):
    shape = {**factories.SMOLLM2_SHAPE, "quantized_parameters": 134_479_872, "quantized_bytes": 96_436_224}
    base = factories.make_version(team=team, shape=shape, format="gguf", quantization="Q4_1", size_bytes=98_000_000)
    eight, table = planned(base, choice("int8_weight_only"), choice("embedding_int8"))
    (problem,) = eight["problems"]
    assert (problem["code"], problem["severity"]) == ("grows", "info")
    assert "in Q4_1 blocks already" in problem["message"]
    assert "grows" not in [each["code"] for each in table["problems"]]
