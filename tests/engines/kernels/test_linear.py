"""Products of few rows against plain float64, in the interpreter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels import fused, linear
from engines.native.kernels.linear import LEAST_INPUTS, MANY_ROWS, MOST_SPLITS, SHARED, ours, plan
from engines.native.ops.torch_ops import TorchOps
from tests.engines.kernels import reference
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}  # as in test_fused
H200 = 132


def case(rows: int, outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, inputs).to(dtype), (torch.randn(outputs, inputs) / inputs**0.5).to(dtype)


@settings(max_examples=8, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 16, 17, 40, 64, 100, 130]),
    outputs=st.sampled_from([5, 40, 64, 100, 200]),
    inputs=st.sampled_from([8, 128, 200, 576, 1024]),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_sum_of_the_splits_is_the_product(rows, outputs, inputs, biased, seed):
    torch.manual_seed(seed)
    x, weight = case(rows, outputs, inputs)
    bias = torch.randn(outputs) if biased else None
    wanted = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
    whole = linear.linear(x, weight, bias, splits=False)
    assert whole.shape == (rows, outputs)
    assert relative_error(whole, wanted) < 1e-5
    split = linear.linear(x, weight, bias, splits=True)
    if split.dim() == 3:
        assert split.dtype == torch.float32
        split = split.sum(0)
    assert relative_error(split, wanted) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_accumulates_in_float32(dtype):
    x, weight = case(3, 64, 512, dtype)
    assert (
        relative_error(linear.linear(x, weight, None, splits=False), x.double() @ weight.double().t())
        < TOLERANCE[dtype]
    )


@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 24, 64), (5, 100, 200), (40, 72, 256)])
def test_gated(rows, outputs, inputs):
    x, weight = case(rows, 2 * outputs, inputs)
    bias = torch.randn(2 * outputs) if rows == 5 else None
    wanted = reference.silu_mul(x.double() @ weight.double().t() + (0 if bias is None else bias.double()))
    assert relative_error(linear.gated_linear(x, weight, bias), wanted) < 1e-6


def test_a_row_is_added_up_alike_whatever_stands_beside_it():
    """Bits are compared on the GPU (kernels_gpu): the interpreter's products depend on the size of the matrix."""
    for outputs, inputs in ((6144, 4096), (1024, 3072), (576, 1536), (128_256, 4096)):
        plans = [plan(rows=n, outputs=outputs, inputs=inputs, gated=False, processors=H200) for n in (1, 2, 16, 32)]
        assert len({(made.splits, made.steps) for made in plans}) == 1


def test_summands_are_added_where_they_are_read():
    x, residual, weight = torch.randn(4, 3, 100), torch.randn(3, 100), torch.randn(100)
    kept = residual.clone()
    normed = fused.add_rms_norm(x, residual, weight, 1e-5)
    assert relative_error(residual, x.double().sum(0) + kept.double()) < 1e-6
    assert relative_error(normed, reference.rms_norm(residual, weight, 1e-5)) < 1e-6


def test_summands_of_queries_keys_and_values():
    qkv, *rest = reference.rope_case(3, 4, 2, 16, 4, (True, True), torch.float32)
    parts = torch.randn(3, *qkv.shape)
    parts[2] = qkv - parts[0] - parts[1]
    wanted = reference.rope_and_cache(parts.sum(0), *rest, 1e-5)
    k_cache, v_cache = (pool.clone() for pool in rest[3:5])
    q = fused.rope_and_cache(parts, *rest[:3], k_cache, v_cache, *rest[5:], 1e-5)
    assert relative_error(q, wanted[0]) < 1e-5
    for pool, right in ((k_cache, wanted[1]), (v_cache, wanted[2])):
        assert relative_error(pool.nan_to_num(), right.nan_to_num()) < 1e-5


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(1, MANY_ROWS), outputs=st.integers(1, 200_000), inputs=st.integers(1, 20_000), gated=st.booleans()
)
def test_a_plan_covers_all_inputs_and_fits_the_device(rows, outputs, inputs, gated):
    made = plan(rows=rows, outputs=outputs, inputs=inputs, gated=gated, processors=H200)
    assert made.block_m >= max(16, min(rows, 64))
    assert 1 <= made.splits <= MOST_SPLITS
    assert made.splits * made.steps * made.block_k >= inputs
    assert made.splits == 1 or inputs >= made.splits * LEAST_INPUTS
    assert made.stages * (made.block_n + made.block_m) * made.block_k * 2 <= SHARED


def test_which_products_are_left_to_cublas():
    """Few rows never, many only where cuBLAS is at a loss as well."""
    assert ours(rows=1, outputs=128_256, gated=False)
    assert ours(rows=256, outputs=1024, gated=False)
    assert not ours(rows=65, outputs=6144, gated=False)
    assert ours(rows=128, outputs=14_336, gated=True)
    assert not ours(rows=257, outputs=1024, gated=False)
    assert not ours(rows=0, outputs=1024, gated=False)


def test_plain_operations_give_whole_products():
    layer, x = (lambda x: x * 2), torch.randn(2, 3)
    assert torch.equal(TorchOps().linear(layer, x), 2 * x)
    assert torch.equal(TorchOps().summands(layer, x), 2 * x)
