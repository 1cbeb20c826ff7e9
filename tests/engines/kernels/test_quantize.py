"""Activations in 8 bits, and products of them, against plain torch, in the interpreter."""

import pytest
import torch

from engines.native.kernels import quantize, scaled
from engines.native.kernels.packed import order
from engines.native.kernels.quantize import GIVEN, GROUPS, TOKEN, QuantizedRows
from tests.engines.kernels import reference
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels

DTYPES = (torch.int8, torch.float8_e4m3fn)
SIZE = 200  # not a multiple of 128
STEP = {torch.int8: 3e-3, torch.float8_e4m3fn: 0.1}  # the interpreter truncates to fp8 where a GPU rounds
EPS = 1e-5


def plain(x: torch.Tensor, dtype: torch.dtype, kind: str, given: torch.Tensor | None) -> torch.Tensor:
    """x [t, SIZE] rounded to 8 bits, float32."""
    top = 127.0 if dtype == torch.int8 else 448.0
    blocks = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % 128)).view(len(x), -1, 128)
    if kind == GROUPS:
        scale = (blocks.abs().amax(-1, keepdim=True) / top).clamp_min(1e-12)
    else:
        scale = (x.float().abs().amax(-1) / top).clamp_min(1e-12).view(-1, 1, 1) if given is None else given
    values = (blocks / scale).clamp(-top, top)
    values = values.round() if dtype == torch.int8 else values.to(dtype).float()
    return (values * scale).flatten(1)[:, : x.shape[1]]


def opened(rows: QuantizedRows, size: int = SIZE) -> torch.Tensor:
    """The values in the order of the inputs, scaled, float32."""
    values = torch.empty(rows.values.shape)
    values[:, order(rows.values.shape[1])] = rows.values.float()
    assert not values[:, size:].any(), "what is padded must be 0"
    scales = rows.scales
    scales = scales.repeat_interleave(128, 1) if scales.dim() == 2 else scales[:, None]
    return (values * scales)[:, :size]


def given_for(kind: str) -> torch.Tensor | None:
    return torch.tensor([0.013]) if kind == GIVEN else None


@pytest.mark.parametrize("kind", [TOKEN, GROUPS, GIVEN])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quantized_where_they_are_made(dtype, kind):
    torch.manual_seed(3)
    given = given_for(kind)
    x = torch.randn(3, SIZE)
    assert relative_error(opened(quantize.quantize(x, dtype, kind, given)), plain(x, dtype, kind, given)) < STEP[dtype]

    parts, residual, weight = torch.randn(2, 3, SIZE), torch.randn(3, SIZE), torch.rand(SIZE)
    total = parts.sum(0) + residual
    rows = quantize.add_rms_norm_quantize(parts, residual, weight, EPS, dtype, kind, given)
    assert relative_error(residual, total) < 1e-6
    normed = reference.rms_norm(total, weight, EPS).float()
    assert relative_error(opened(rows), plain(normed, dtype, kind, given)) < STEP[dtype]

    gate_up = torch.randn(3, 2 * SIZE)
    wanted = plain(reference.silu_mul(gate_up).float(), dtype, kind, given)
    assert relative_error(opened(quantize.silu_mul_quantize(gate_up, dtype, kind, given)), wanted) < STEP[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_beyond_a_given_scale_saturate_and_a_row_of_zeros_stays_zero(dtype):
    x = torch.zeros(2, 128)
    x[1, 5], x[1, 6] = 1e6, -1e6
    rows = quantize.quantize(x, dtype, GIVEN, torch.tensor([1.0]))
    top = 127.0 if dtype == torch.int8 else 448.0
    assert opened(rows, 128)[1, 5:7].tolist() == [top, -top]
    assert not opened(quantize.quantize(x[:1], dtype, TOKEN), 128).any()
    assert quantize.quantize(x[:0], dtype, TOKEN).values.shape == (0, 128)


def test_the_distance_of_scales_makes_no_other_kernel():
    """It is 0 for one row and 1 for two."""
    for kernel in (scaled.scaled_linear_kernel, scaled.scaled_product_kernel):
        assert "x_stride" in kernel.kwargs["do_not_specialize"]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("form", ["int8", "fp8"])
def test_products_of_8_bits(form, grouped):
    torch.manual_seed(4)
    outputs = 200
    weight, matrix = reference.packed(form, outputs, SIZE, 128 if grouped else 0, height=128)
    dtype = torch.int8 if form == "int8" else torch.float8_e4m3fn
    rows = quantize.quantize(torch.randn(3, SIZE), dtype, GROUPS if grouped else TOKEN)
    bias = torch.randn(outputs)
    wanted = opened(rows).double() @ matrix.double().t() + bias
    assert relative_error(scaled.scaled_linear(rows, weight, bias, splits=False), wanted) < 1e-5
    summands = scaled.scaled_linear(rows, weight, bias, splits=True)
    assert relative_error(summands.sum(0) if summands.dim() == 3 else summands, wanted) < 1e-5
    gated = scaled.scaled_gated(rows, weight, bias)
    assert relative_error(gated, reference.silu_mul(wanted)) < 1e-5
    if not grouped:
        product = scaled.scaled_product(rows, weight, bias, scaled.Tile(16, 32, 128, 4, 2))
        assert relative_error(product, wanted) < 1e-5
