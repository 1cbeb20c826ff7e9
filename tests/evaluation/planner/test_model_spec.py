"""Sizes from a configuration, held to those of the engine's own loader, which knows every tensor's name."""

from __future__ import annotations

import pytest

from engines.native.loader.hf_config import decoder_config
from evaluation.planner.memory import Layout, kv_of_length, kv_per_token
from evaluation.planner.model_spec import SpecError, from_config, from_shape, load
from tests.evaluation.planner import models

ALL = {name: config for name, config in vars(models).items() if isinstance(config, dict) and "model_type" in config}


@pytest.mark.parametrize("name", sorted(ALL))
def test_parameters_are_those_of_the_files(name):
    truth = decoder_config(ALL[name])
    spec = from_config(ALL[name], name)
    assert spec.parameters == pytest.approx(truth.parameters(), rel=1e-5)
    assert spec.windows == truth.windows
    assert spec.layers * spec.kv_width == truth.kv_values


@pytest.mark.parametrize(
    ("config", "bytes_per_token"),
    [
        (models.LLAMA2_7B, 524_288),
        (models.LLAMA31_8B, 131_072),
        (models.QWEN25_7B, 57_344),
        (models.QWEN3_8B, 147_456),
        (models.QWEN3_32B, 262_144),
        (models.LLAMA31_70B, 327_680),
        (models.DEEPSEEK_V3, 70_272),
    ],
)
def test_bytes_of_a_cached_token(config, bytes_per_token):
    """Check values of reference/evaluation.md 2.1, at 16 bits."""
    assert kv_per_token(from_config(config), "bfloat16") == bytes_per_token


def test_heads_fewer_than_ranks_are_repeated_and_latents_never_divided():
    qwen = from_config(models.QWEN25_7B)  # 4 heads of keys
    assert kv_per_token(qwen, "bfloat16", Layout(4)) == 57_344 / 4
    assert kv_per_token(qwen, "bfloat16", Layout(28)) == kv_per_token(qwen, "bfloat16", Layout(4))
    assert kv_per_token(from_config(models.DEEPSEEK_V3), "bfloat16", Layout(8)) == 70_272
    assert kv_per_token(qwen, "bfloat16", Layout(1, 2)) == 57_344 / 2


def test_cache_formats():
    spec = from_config(models.LLAMA31_8B)
    assert kv_per_token(spec, "fp8") == 65_536
    assert kv_per_token(spec, "int8") == pytest.approx(65_536 * (1 + 2 / 128))


def test_a_window_ends_what_a_layer_holds():
    gemma = from_config(models.GEMMA3_1B)
    assert (gemma.windows.count(0), gemma.windows.count(512)) == (4, 22)
    per_layer = 2 * 1 * 256 * 2
    assert kv_of_length(gemma, "bfloat16", 400, True) == 26 * per_layer * 400
    assert kv_of_length(gemma, "bfloat16", 4000, True) == per_layer * (4 * 4000 + 22 * 512)
    assert kv_of_length(gemma, "bfloat16", 4000, False) == 26 * per_layer * 4000  # the native engine keeps all blocks


def test_a_mixture_reads_the_experts_that_its_rows_choose():
    spec = from_config(models.QWEN3_30B_A3B)
    assert spec.active_parameters == pytest.approx(3.0e9, rel=0.15)
    assert spec.experts_touched(1) == pytest.approx(8 / 128)
    assert spec.experts_touched(16) == pytest.approx(1 - (1 - 1 / 16) ** 16)
    assert spec.experts_touched(1e6) == pytest.approx(1)
    assert from_config(models.LLAMA31_8B).experts_touched(9) == 0


def test_the_registry_s_shape_says_the_same():
    shape = {
        "architecture": "llama", "layers": 30, "hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64,
        "vocab": 49_152, "context_length": 8192, "parameters": 134_515_008, "tied_embeddings": True,
    }  # fmt: skip
    one, other = load(shape), load(models.SMOLLM2)
    assert one.parameters == other.parameters == 134_515_008
    assert (one.attention, one.dense_mlp, one.norms) == (other.attention, other.dense_mlp, other.norms)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**models.LLAMA31_8B, "hidden_size": 0}, "hidden_size: 0"),
        ({**models.QWEN3_8B, "layer_types": ["linear_attention"] * 36}, "layer_types"),
        ({**models.MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok: 9"),
        ({"model_type": "llama"}, "num_hidden_layers"),
    ],
)
def test_what_can_t_be_counted_is_refused_by_name(config, words):
    with pytest.raises(SpecError, match=words):
        from_config(config)


def test_a_mixture_s_shape_does_not_say_enough():
    shape = {
        "architecture": "qwen3_moe", "layers": 48, "hidden": 2048, "ffn": 6144, "heads": 32, "kv_heads": 4,
        "head_dim": 128, "vocab": 151_936, "context_length": 32_768, "parameters": 30_532_122_624,
    }  # fmt: skip
    with pytest.raises(SpecError, match=r"config\.json"):
        from_shape(shape)
    with pytest.raises(SpecError, match="task"):
        from_shape({**shape, "task": "embed"})
