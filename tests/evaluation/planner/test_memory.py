"""Memory, held to the engine's own plan, to what it measured on an H200, and to the reference's check values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.api import LaunchSpec, ModelShape, get_engine
from engines.native.loader.hf_config import decoder_config
from evaluation.planner import hardware, memory, schemes
from evaluation.planner.candidates import Candidate, candidate, kv_room
from evaluation.planner.constraints import Constraints
from evaluation.planner.memory import Layout
from evaluation.planner.model_spec import from_config
from tests.evaluation.planner import models

ROOT = Path(__file__).parents[3]


def _fit(config, available, **spec):
    own = decoder_config(config)
    shape = ModelShape(
        own.architecture, own.layers, own.hidden, own.widest_ffn, own.heads, own.kv_heads, own.head_dim, own.vocab,
        own.context_length, own.parameters(), own.tied, 0, own.kv_values,
    )  # fmt: skip
    plain = {"speculation": "off"}  # the plan knows no logits behind guesses
    return get_engine("native").fit(shape, LaunchSpec("id", "name", [], "gguf", options=plain, **spec), 0, available)


@pytest.mark.parametrize(
    ("config", "device", "scheme", "length", "seqs"),
    [
        (models.SMOLLM2, "cpu2", "int8", 2048, 16),
        (models.SMOLLM2, "cpu2", "float32", 8192, 4),
        (models.SMOLLM2, "h200", "bfloat16", 8192, 256),
        (models.QWEN3_06B, "h200", "bfloat16", 8448, 512),
        (models.LLAMA31_8B, "h200", "bfloat16", 8448, 512),
        (models.LLAMA31_8B, "a100", "float16", 32_768, 256),
        (models.LLAMA31_8B, "a10", "bfloat16", 4096, 32),
        (models.QWEN25_7B, "l40s", "bfloat16", 16_384, 128),
        (models.GEMMA3_1B, "a10", "bfloat16", 8192, 256),
        (models.QWEN3_30B_A3B, "h100", "bfloat16", 8192, 64),
        (models.MIXTRAL, "b200", "bfloat16", 8192, 64),
    ],
)
def test_each_part_is_within_5_percent_of_the_engine_s_plan(config, device, scheme, length, seqs):
    gpu, spec = hardware.gpu(device), from_config(config)
    kind = "cpu" if gpu.kind == "cpu" else "cuda"
    engine = memory.native(gpu, schemes.scheme(scheme), max_length=length, sequences=seqs)
    lines = {each.part: each.bytes for each in memory.fixed_lines(spec, schemes.scheme(scheme), engine, gpu)}
    planned = _fit(config, gpu.memory, device=kind, dtype=scheme, max_model_len=length, max_num_seqs=seqs)
    assert planned.fits, planned.reason
    assert lines["weights"] == pytest.approx(planned.weights, rel=0.01)
    assert lines["activations"] == pytest.approx(planned.activations, rel=0.05)
    assert lines["overhead"] == pytest.approx(planned.overhead, rel=0.05)
    without_kv = planned.total - planned.kv_cache
    ours = sum(lines[part] for part in ("weights", "activations", "overhead"))
    assert ours == pytest.approx(without_kv, rel=0.05)


def test_the_h200_holds_as_many_tokens_as_were_measured():
    """docs/benchmarks/engine_gpu.h200.json: blocks of 16 that the engine found room for."""
    rows = json.loads((ROOT / "docs/benchmarks/engine_gpu.h200.json").read_text())["rows"]
    blocks = next(row["value"] for row in rows if row["case"] == "llama8b KV cache")
    asked = Constraints(sequences=512, step_tokens=16_384, max_length=8448)
    scheme = schemes.scheme("bfloat16")
    spec = from_config(models.LLAMA31_8B)
    found = candidate(spec, asked, 8448, hardware.gpu("h200"), scheme, "bfloat16", Layout())
    assert isinstance(found, Candidate)
    assert found.kv_tokens == pytest.approx(blocks * 16, rel=0.05)


def test_4_bits_with_their_scales():
    """0.5 + 2/128 and with a zero point 0.5 + 2.5/128 bytes; ends in 16 bits."""
    assert schemes.scheme("w4a16").linear == pytest.approx(0.5156, abs=1e-4)
    assert schemes.scheme("w4a16-asym").linear == pytest.approx(0.5195, abs=1e-4)
    spec = from_config(models.LLAMA31_8B)
    four, sixteen = (memory.weight_bytes(spec, schemes.scheme(name)) for name in ("w4a16", "bfloat16"))
    linear = spec.attention + spec.dense_mlp
    assert sixteen - four == pytest.approx(linear * (2 - 0.515625), rel=1e-6)


def test_ranks_share_projections_and_ends_but_not_norms():
    spec, scheme = from_config(models.LLAMA31_8B), schemes.scheme("bfloat16")
    whole, half = (memory.weight_bytes(spec, scheme, Layout(tp)) for tp in (1, 2))
    assert 2 * half - whole == 2 * spec.norms
    first = memory.weight_bytes(spec, scheme, Layout(1, 2))
    assert first == pytest.approx((spec.attention + spec.dense_mlp) + 2 * spec.embedding, rel=1e-3)
    many = memory.weight_bytes(from_config(models.QWEN25_7B), scheme, Layout(28))
    assert many > memory.weight_bytes(from_config(models.QWEN25_7B), scheme) / 28  # heads of keys are repeated


def test_the_reserve_is_a_line_of_its_own_and_at_most_5_percent():
    gpu, scheme = hardware.gpu("h200"), schemes.scheme("bfloat16")
    lines = memory.fixed_lines(from_config(models.LLAMA31_8B), scheme, memory.native(gpu, scheme), gpu)
    reserve = memory.reserve_line(lines)
    assert reserve.bytes == pytest.approx(0.05 * memory.total(lines), abs=1)
    with pytest.raises(ValueError, match="reserve"):
        memory.reserve_line(lines, 0.06)


def test_communication_is_counted_for_several_ranks():
    gpu, scheme = hardware.gpu("h100"), schemes.scheme("bfloat16")
    engine = memory.native(gpu, scheme)
    spec = from_config(models.LLAMA31_70B)
    parts = {each.part: each.bytes for each in memory.fixed_lines(spec, scheme, engine, gpu, Layout(4))}
    assert parts["communication"] == 392 * 2**20
    assert parts["weights"] == pytest.approx(70.55e9 * 2 / 4, rel=0.01)
    assert 0 < kv_room(memory.fixed_lines(spec, scheme, engine, gpu, Layout(4)), gpu) < gpu.memory - parts["weights"]


def test_what_does_not_fit_says_how_much_is_missing():
    found = candidate(
        from_config(models.LLAMA31_70B), Constraints(), 8192, hardware.gpu("a10"), schemes.scheme("bfloat16"),
        "bfloat16", Layout(),
    )  # fmt: skip
    assert (found.code, found.values["gpu"]) == ("too_small", "a10")
    assert found.values["short_bytes"] > 100 * 2**30
