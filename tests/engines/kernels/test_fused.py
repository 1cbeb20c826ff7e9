"""The fused kernels against plain float64 references, in the interpreter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels import fused
from tests.engines.kernels import reference
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels

# The interpreter truncates to bfloat16 where the GPU rounds; evaluation/benchmarks/kernels_gpu.py checks the GPU.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
EPS = 1e-5


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("size", [16, 576, 100])
def test_rms_norm(size, dtype):
    x, weight = random(3, size, dtype=dtype) * 3, random(size, dtype=dtype)
    assert relative_error(fused.rms_norm(x, weight, EPS), reference.rms_norm(x, weight, EPS)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("size", [64, 100])
def test_add_rms_norm_updates_the_residual(size, dtype):
    x, residual, weight = random(3, size, dtype=dtype), random(3, size, dtype=dtype), random(size, dtype=dtype)
    total = x.double() + residual.double()
    normed = fused.add_rms_norm(x, residual, weight, EPS)
    assert relative_error(residual, total) < TOLERANCE[dtype]
    assert relative_error(normed, reference.rms_norm(residual, weight, EPS)) < TOLERANCE[dtype]


def test_rotated_keys_go_beside_the_cache_too():
    case = reference.rope_case(3, 4, 2, 16, 4, (False, True), torch.float32)
    _, k_cache, _ = reference.rope_and_cache(*case, EPS)
    keys = torch.full((3, 2, 16), torch.nan)
    fused.rope_and_cache(*case, EPS, keys)
    slots = case[3]
    assert relative_error(keys, k_cache[slots // 4, :, slots % 4]) < 1e-5


def test_norms_of_no_tokens_are_empty():
    """A step of prompt chunks only needs no logits, so the last norm gets nothing."""
    nothing, weight = torch.empty(0, 64), torch.ones(64)
    assert fused.rms_norm(nothing, weight, EPS).shape == (0, 64)
    assert fused.add_rms_norm(nothing, nothing.clone(), weight, EPS).shape == (0, 64)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("size", [24, 1536])
def test_silu_mul(size, dtype):
    gate_up = random(3, 2 * size, dtype=dtype) * 4
    assert relative_error(fused.silu_mul(gate_up), reference.silu_mul(gate_up)) < TOLERANCE[dtype]


def test_silu_mul_of_extreme_gates_is_finite():
    gate_up = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4, 3.0, 3.0, 3.0, 3.0, 3.0]])
    assert relative_error(fused.silu_mul(gate_up), reference.silu_mul(gate_up)) < 1e-6


@settings(max_examples=10, deadline=None)
@given(
    tokens=st.integers(1, 4),
    heads=st.sampled_from([(2, 1), (9, 3), (4, 4)]),
    head_dim=st.sampled_from([16, 24, 64]),
    page=st.sampled_from([1, 4, 6]),
    norms=st.sampled_from([(False, False), (True, True), (True, False)]),
    seed=st.integers(0, 99),
)
def test_rope_and_cache(tokens, heads, head_dim, page, norms, seed):
    torch.manual_seed(seed)
    check_rope(tokens, *heads, head_dim, page, norms, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rope_and_cache_in_half_precision(dtype):
    check_rope(3, 4, 2, 32, 4, (True, True), dtype)


def check_rope(tokens, heads, kv_heads, head_dim, page, norms, dtype):
    case = reference.rope_case(tokens, heads, kv_heads, head_dim, page, norms, dtype)
    q, k_cache, v_cache = reference.rope_and_cache(*case, EPS)
    found = fused.rope_and_cache(*case, EPS)
    assert relative_error(found, q) < TOLERANCE[dtype]
    for name, cache, wanted in (("k", case[4], k_cache), ("v", case[5], v_cache)):
        written = ~wanted.isnan()
        assert torch.equal(cache.isnan(), wanted.isnan()), f"{name} written at the wrong slots"
        assert relative_error(cache[written], wanted[written]) < TOLERANCE[dtype]
