"""Rounding to nearest, against its formula, and what a clip search gains."""

from __future__ import annotations

import pytest
import torch

from engines.native.quant.scheme import WeightScheme
from plugins.quantization.algorithms.grid import check_scheme, quantize_rtn
from plugins.quantization.backends.native import scale_dtype_of
from plugins.quantization.errors import QuantizationFailed

WEIGHT = torch.randn(48, 96, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 1, 96)


def test_symmetric_groups() -> None:
    groups = WEIGHT.view(48, 3, 32)
    scales = groups.abs().amax(-1, keepdim=True) / 7
    wanted = ((groups / scales).round().clamp(-8, 7) * scales).view(48, 96)
    made = quantize_rtn(WEIGHT, WeightScheme("int", 4, "group", 32))
    assert torch.equal(made.dequantize(), wanted)
    assert made.values.dtype == torch.uint8
    assert made.values.shape == (48, 48)
    assert made.scales.shape == (48, 3)


def test_asymmetric_groups_hold_their_ends_and_zero() -> None:
    skewed = WEIGHT.abs() + 0.01 * WEIGHT
    groups = skewed.view(48, 3, 32)
    low, high = groups.amin(-1, keepdim=True).clamp(max=0), groups.amax(-1, keepdim=True).clamp(min=0)
    scales = (high - low) / 15
    zeros = (-low / scales).round()
    wanted = ((((groups / scales).round() + zeros).clamp(0, 15) - zeros) * scales).view(48, 96)
    made = quantize_rtn(skewed, WeightScheme("int", 4, "group", 32, symmetric=False))
    assert torch.equal(made.dequantize(), wanted)
    assert made.zeros is not None
    assert made.zeros.dtype == torch.uint8
    symmetric = quantize_rtn(skewed, WeightScheme("int", 4, "group", 32)).dequantize()
    assert (made.dequantize() - skewed).norm() < 0.7 * (symmetric - skewed).norm()


def test_asymmetric_bytes() -> None:
    made = quantize_rtn(WEIGHT.abs(), WeightScheme("int", 8, "channel", symmetric=False))
    assert made.zeros is not None
    assert made.values.dtype == torch.int8
    step = WEIGHT.abs().amax(-1, keepdim=True) / 255
    assert bool(((made.dequantize() - WEIGHT.abs()).abs() <= step / 2 * 1.001).all())


@pytest.mark.parametrize(
    ("scheme", "shape"),
    [
        (WeightScheme("float", 8, "channel"), (48, 1)),
        (WeightScheme("float", 8, "tensor"), (1, 1)),
        (WeightScheme("float", 8, "block", block=(32, 64)), (2, 2)),
    ],
)
def test_fp8(scheme: WeightScheme, shape: tuple[int, int]) -> None:
    made = quantize_rtn(WEIGHT, scheme)
    assert made.values.dtype == torch.float8_e4m3fn
    assert made.scales.shape == shape
    top = float(made.values.float().abs().max())
    assert top == 448  # the greatest of a group is the greatest number
    assert float((made.dequantize() - WEIGHT).abs().max()) <= 2**-4 * float(WEIGHT.abs().max())
    rows = made.scales[0, 0] * made.values[:32, :64].float()
    torch.testing.assert_close(made.dequantize()[0], torch.cat([rows[0], made.dequantize()[0, 64:]]))


def test_scales_hold_in_their_dtype_before_values_are_rounded_for_them() -> None:
    made = quantize_rtn(WEIGHT, WeightScheme("int", 8, "channel"), scale_dtype=torch.bfloat16)
    assert made.scales.dtype == torch.bfloat16
    steps = made.scales.float()
    inside = WEIGHT.abs() <= 127 * steps
    assert bool(((made.dequantize(torch.float32) - WEIGHT).abs() <= steps / 2 * 1.001)[inside].all())


def test_clip_search_loses_less_by_weights_and_by_outputs() -> None:
    scheme = WeightScheme("int", 4, "group", 32)
    plain = quantize_rtn(WEIGHT, scheme).dequantize() - WEIGHT
    clipped = quantize_rtn(WEIGHT, scheme, clip_search=True).dequantize() - WEIGHT
    assert clipped.norm() < 0.99 * plain.norm()
    x = torch.randn(512, 96, generator=torch.Generator().manual_seed(1)) * torch.logspace(1, -1, 96)
    by_outputs = quantize_rtn(WEIGHT, scheme, clip_search=True, hessian=x.t() @ x).dequantize() - WEIGHT
    assert (x @ by_outputs.t()).norm() < (x @ clipped.t()).norm()


def test_a_group_of_zeros_stays_zero() -> None:
    made = quantize_rtn(torch.zeros(4, 32), WeightScheme("int", 4, "group", 16, symmetric=False))
    assert bool(torch.isfinite(made.scales).all())
    assert not bool(made.dequantize().any())


@pytest.mark.parametrize("scheme", [WeightScheme("int", 4, "group", 32), WeightScheme("float", 8, "channel")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_small_weights_keep_their_scale(scheme: WeightScheme, dtype: torch.dtype) -> None:
    """A scale below float16's least normal number, 6.1e-5, once became 1: the outputs were zeros."""
    small = WEIGHT * (1e-4 / WEIGHT.abs().amax(-1, keepdim=True))
    made = quantize_rtn(small, scheme, scale_dtype=dtype).dequantize(torch.float32)
    assert (made - small).norm() < (0.2 if dtype == torch.float32 else 0.5) * small.norm()


def test_scales_beside_float16_are_float32() -> None:
    assert scale_dtype_of(torch.float16) == scale_dtype_of(torch.float32) == torch.float32
    assert scale_dtype_of(torch.bfloat16) == torch.bfloat16


def test_what_cannot_be_made_is_refused_with_what_can() -> None:
    with pytest.raises(QuantizationFailed, match=r"layers\.2\.down.*128 don't divide its 576.*64, 96, 192"):
        check_scheme(WeightScheme("int", 4, "group", 128), 576, "layers.2.down")
    with pytest.raises(QuantizationFailed, match="3 bits"):
        check_scheme(WeightScheme("int", 3, "channel"), 576, "layers.0.o")
    with pytest.raises(QuantizationFailed, match="symmetric"):
        check_scheme(WeightScheme("float", 8, "channel", symmetric=False), 576, "layers.0.o")
