"""Layers of quantized weights as a GPU serves them, in the interpreter: from a checkpoint to a block's output."""

from dataclasses import replace

import pytest
import torch

from engines.native.kernels.quantize import QuantizedRows
from engines.native.layers import quantized_gpu
from engines.native.layers.quantized import Place
from engines.native.layers.quantized_gpu import GatedFor, GpuMethod, NormFor, ScaledLinear, UpcastLinear
from engines.native.ops.triton_ops import TritonOps
from evaluation.benchmarks.quantized_cases import SCHEMES, quantized
from tests.engines.kernels import reference
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels

PLACE = Place(torch.device("cpu"), torch.float16)


def made(name: str, outputs: int, inputs: int) -> tuple[UpcastLinear, torch.Tensor]:
    """The layer, and the matrix that the checkpoint's own form stands for."""
    weight = quantized(torch.randn(outputs, inputs) / inputs**0.5, SCHEMES[name])
    assert GpuMethod().refusal(weight, PLACE) == ""
    layer = GpuMethod().make(weight, None, PLACE)
    assert isinstance(layer, UpcastLinear)
    return layer, weight.dequantize(torch.float64)


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_every_scheme_multiplies_as_its_dequantized_matrix(name):
    torch.manual_seed(1)
    layer, matrix = made(name, 72, 256)
    x = torch.randn(3, 256).half()
    assert relative_error(layer(x), x.double() @ matrix.t()) < 1e-3
    gated = TritonOps().silu_gated(layer, x)
    assert relative_error(gated, reference.silu_mul(x.double() @ matrix.t())) < 2e-3
    summands = TritonOps().summands(layer, x)
    assert relative_error(summands.double().sum(0) if summands.dim() == 3 else summands, x.double() @ matrix.t()) < 1e-3
    assert layer(x[:0]).shape == (0, 72)


@pytest.mark.parametrize("name", ["fp8", "fp8-block", "int8"])
def test_many_rows_are_quantized_once_by_what_makes_them(name, monkeypatch):
    """A norm for the product that reads it, few rows too, silu × up for the product after, only many."""
    monkeypatch.setattr(quantized_gpu, "FEW_ROWS", 2)
    monkeypatch.setattr(quantized_gpu, "MORE_ROWS", 3)
    torch.manual_seed(2)
    layer, matrix = made(name, 128, 128)
    down, down_matrix = made(name, 40, 64)
    assert isinstance(layer, ScaledLinear)
    ops = TritonOps()
    for count in (2, 3, 4):
        x, residual, weight = torch.randn(count, 128).half(), torch.randn(count, 128).half(), torch.rand(128).half()
        total = (x.float() + residual.float()).half()
        normed = reference.rms_norm(total, weight, 1e-5)
        rows, kept = ops.add_rms_norm_for(layer)(x, residual, weight, 1e-5)
        assert isinstance(rows, QuantizedRows) == (count > 2 or name != "fp8-block")
        assert len(rows) == count
        assert torch.equal(kept, total)
        assert relative_error(ops.summands(layer, rows), normed @ matrix.t()) < 0.1
        gated = ops.silu_gated_for(down)(layer, x)
        assert isinstance(gated, QuantizedRows) == (count > 3)
        wanted = reference.silu_mul(x.double() @ matrix.t()) @ down_matrix.t()
        assert relative_error(ops.linear(down, gated), wanted) < 0.2  # the interpreter truncates to fp8


def test_what_reads_nothing_quantized_gets_plain_tensors():
    ops = TritonOps()
    assert not isinstance(ops.add_rms_norm_for(None), NormFor)
    assert not isinstance(ops.silu_gated_for(made("w4a16", 40, 128)[0]), GatedFor)


def test_a_weight_without_activations_is_widened_for_many_rows(monkeypatch):
    monkeypatch.setattr(quantized_gpu, "WIDEN_FROM", 3)
    layer, matrix = made("w4a16-asym", 64, 128)
    x = torch.randn(3, 128).half()
    assert relative_error(layer(x), x.double() @ matrix.t()) < 1e-3
    assert relative_error(layer.gated(x), reference.silu_mul(x.double() @ matrix.t())) < 2e-3


def test_what_no_kernel_takes_is_said():
    method, weight = GpuMethod(), quantized(torch.randn(8, 96), SCHEMES["w4a16-channel"])
    assert "16 bits" in method.refusal(weight, replace(PLACE, dtype=torch.float32))
    assert "strict" in method.refusal(weight, replace(PLACE, strict=True))
    scheme = replace(weight.scheme, strategy="group", group=48)
    odd = replace(weight, scheme=scheme, scales=torch.ones(8, 2))
    assert "groups of 48" in method.refusal(odd, PLACE)
    assert "offsets" in method.refusal(replace(weight, offsets=torch.zeros(8, 1)), PLACE)
    few = replace(weight, scheme=replace(scheme, group=32), groups_of=torch.zeros(96, dtype=torch.int32))
    assert "act-order" in method.refusal(few, PLACE)
