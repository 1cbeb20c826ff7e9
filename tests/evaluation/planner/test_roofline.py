"""Least times: the reference's check values, and laws that must hold for any shape."""

from __future__ import annotations

import pytest

from evaluation.planner import hardware, memory, schemes
from evaluation.planner.memory import Layout
from evaluation.planner.model_spec import from_config, from_shape
from evaluation.planner.roofline import Roof, Step, all_reduce, decode, prefill
from tests.evaluation.planner import models

BF16 = schemes.scheme("bfloat16")


def _roof(config, gpu: str, tp: int = 1, scheme: str = "bfloat16") -> Roof:
    return Roof(from_config(config), hardware.gpu(gpu), schemes.scheme(scheme), "bfloat16", Layout(tp))


@pytest.mark.parametrize(
    ("gpu", "ms"),
    [("a10", 26.8), ("l20", 18.6), ("rtx4090", 15.9), ("a100", 7.9), ("h100", 4.8), ("h20", 4.0), ("h200", 3.35)],
)
def test_decode_floor_of_an_8b_model(gpu, ms):
    """Section 2.4: 16.06 GB over the bandwidth. A step reads less: not the table of embeddings."""
    device = hardware.gpu(gpu)
    spec = from_config(models.LLAMA31_8B)
    assert memory.weight_bytes(spec, BF16) / device.bandwidth * 1e3 == pytest.approx(ms, abs=0.06)
    step = _roof(models.LLAMA31_8B, gpu).sol(decode(1, 1))
    assert step * device.bandwidth == pytest.approx(2 * (spec.parameters - spec.embedding), rel=1e-3)


def test_10b_on_an_a100_is_bound_by_memory():
    """TACO-LLM's calculation: 20 GB / 2039 GB/s = 10 ms against 0.07 ms of compute."""
    shape = {
        "architecture": "llama", "layers": 40, "hidden": 4096, "ffn": 16_384, "heads": 32, "kv_heads": 32,
        "head_dim": 128, "vocab": 32_000, "context_length": 2048, "parameters": 10_000_000_000,
    }  # fmt: skip
    roof = Roof(from_shape(shape), hardware.gpu("a100"), BF16, "bfloat16")
    op = roof.linear(1, 1)
    assert op.seconds == pytest.approx(10e-3, rel=0.05)
    assert op.flops / 312e12 == pytest.approx(0.065e-3, rel=0.05)


def test_prefill_s_operations():
    """2·P·n + 4·L·h_q·n·(ctx + n/2); the head is for the last token alone."""
    roof = _roof(models.LLAMA31_8B, "h200")
    spec, n, ctx = roof.model, 2048, 1024
    step = prefill(n, ctx)
    ops = {op.name: op for op in roof.ops(step)}
    assert ops["attention_prefill"].flops == 4 * 32 * 4096 * n * (ctx + n / 2)
    assert ops["linear"].flops == 2 * (spec.attention + spec.dense_mlp) * n + 2 * spec.embedding
    assert prefill(n, ctx, 3).pairs == 3 * step.pairs


@pytest.mark.parametrize("step", [decode(7, 900), prefill(600, 50), Step(5, 4000, 300, 45_000)])
def test_a_step_s_need_is_that_of_its_ops(step):
    roof = _roof(models.QWEN3_30B_A3B, "h100", 2)
    found = {op.name: op.seconds for op in roof.ops(step)}
    need = roof.need(step)
    assert {name: getattr(need, name) for name in need.__struct_fields__ if getattr(need, name)} == found


def test_a_step_takes_no_less_for_more_work():
    roof = _roof(models.QWEN3_30B_A3B, "h100")
    assert roof.sol(decode(1, 100)) < roof.sol(decode(8, 100)) < roof.sol(decode(64, 100))
    assert roof.sol(decode(8, 100)) < roof.sol(decode(8, 10_000))
    assert roof.sol(Step(8, 800, 512, 512 * 256)) > roof.sol(Step(8, 800))


def test_a_mixture_s_few_rows_read_few_experts():
    roof = _roof(models.QWEN3_30B_A3B, "h100")
    spec = roof.model
    one, many = roof.linear(1, 1).bytes, roof.linear(4096, 1).bytes
    assert one == pytest.approx(2 * (spec.attention + spec.dense_mlp + spec.embedding + spec.experts / 16))
    assert many == pytest.approx(2 * (spec.parameters - spec.embedding - spec.norms), rel=1e-6)


def test_latent_attention_and_fp8():
    roof = _roof(models.DEEPSEEK_V3, "h200", 8, "fp8")
    assert roof.attention_decode(1000, 10).bytes == 1000 * 70_272  # not divided by TP
    assert roof.linear(1, 1).seconds < _roof(models.DEEPSEEK_V3, "h200", 8).linear(1, 1).seconds * 0.6


def test_ranks_divide_work_and_add_messages():
    alone, four = _roof(models.LLAMA31_70B, "h100"), _roof(models.LLAMA31_70B, "h100", 4)
    assert four.need(decode(16, 500)).linear == pytest.approx(alone.need(decode(16, 500)).linear / 4)
    assert alone.need(decode(16, 500)).communication == 0
    slow = _roof(models.LLAMA31_70B, "l40s", 4)
    big = prefill(8192)
    assert slow.need(big).communication > 5 * four.need(big).communication  # PCIe against NVLink


def test_all_reduce_takes_the_shorter_way():
    assert all_reduce(1e9, 1, 450e9) == 0
    assert all_reduce(1e9, 4, 450e9, 0) == pytest.approx(1.5 * 1e9 / 450e9)
    assert all_reduce(1e3, 8, 450e9) == pytest.approx(7e3 / 450e9 + 10e-6)  # one shot: one latency


def test_windows_bound_what_a_decode_reads():
    roof = _roof(models.GEMMA3_1B, "a100")
    per_layer = 2 * 256 * 2
    assert roof.attention_decode(10 * 4000, 10).bytes == pytest.approx(10 * per_layer * (4 * 4000 + 22 * 512))
