"""Shares of the roofline: figures by hand, and silence where kernels can't be told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engines.native.models.config import DecoderConfig, Latent, Rope
from engines.native.profile import Work
from engines.native.roofline import Limits, Need, attention, measure, product_works, products, reached

CONFIG = DecoderConfig(
    architecture="llama", layers=2, hidden=8, ffn=16, heads=2, kv_heads=1, head_dim=4, vocab=32, context_length=64,
    norm_eps=1e-5, rope=Rope(), tied=True, qkv_bias=False, o_bias=False, mlp_bias=False, qk_norm=False, windows=(0, 6),
)  # fmt: skip
ORDER = ["qkv", "o", "gate_up", "down"] * 2 + ["head"]
LIMITS = Limits(bandwidth=1e9, flops=1e9)


def step(begin: float = 0.0, each: float = 2.0, gemm: str = "linear_kernel") -> list[Work]:
    """One step as a GPU does it: products of `each` µs, one attention and one norm per layer, a reduction."""
    works = []
    for layer in range(2):
        at = begin + layer * 100
        works += [Work(gemm, at, at + each), Work("paged_attention_kernel", at + 10, at + 11)]
        works += [Work(gemm, at + 20 * i, at + 20 * i + each) for i in (1, 2, 3)]
        works += [Work("add_rms_norm_kernel", at + 90, at + 91), Work("splitKreduce_kernel", at + 92, at + 93)]
    return [*works, Work("nvjet_head", begin + 200, begin + 204)]


def test_what_a_step_needs_is_its_weights_and_its_keys() -> None:
    needs = products(CONFIG, "bfloat16", rows=3)
    assert [need.part for need in needs] == ORDER
    assert [need.bytes for need in needs[:4]] == [2 * 16 * 8, 2 * 8 * 8, 2 * 32 * 8, 2 * 8 * 16]
    assert needs[-1] == Need("head", 2 * 32 * 8, 2 * 3 * 32 * 8)
    assert products(CONFIG, "int8", 1)[0].bytes == 16 * 8
    read = attention(CONFIG, "bfloat16", rows=3, keys=10)
    assert read.bytes == 2 * 3 * (10 + 6) * 4 * 2  # K and V, rows, keys seen in both layers, values, bytes
    assert read.flops == 4 * 3 * (10 + 6) * 8
    latent = replace(CONFIG, latent=Latent(0, 8, 4, 4, 4))
    assert products(latent, "bfloat16", 1) == []


def test_products_are_found_by_their_order_whatever_was_caught_of_the_step_before() -> None:
    cut = [work for work in step() if work.start > 100]
    works = [*cut, *step(1000), *step(2000)]
    found = product_works(works, 2, len(ORDER))
    assert len(found) == 2 * len(ORDER)
    assert found[0].start == 1000
    assert [work.name for work in found[-2:]] == ["linear_kernel", "nvjet_head"]


def test_shares_are_the_least_time_over_the_time() -> None:
    needs = products(CONFIG, "bfloat16", rows=3)
    parts, kernels = reached([*step(), *step(1000)], 2, needs, attention(CONFIG, "bfloat16", 3, 10), LIMITS)
    by_part = {each.name: each for each in parts}
    assert set(by_part) == {*ORDER, "attention"}
    qkv = by_part["qkv"]
    assert qkv.spent == pytest.approx(4.0)  # two layers of 2 µs
    assert qkv.least == pytest.approx(2 * 2 * 3 * 16 * 8 / 1e9 * 1e6)  # bound by operations: 3 rows on equal limits
    assert qkv.share == pytest.approx(qkv.least / 4)
    assert qkv.gigabytes == pytest.approx(2 * 256 / 4 / 1e3)
    assert by_part["attention"].spent == pytest.approx(2.0)
    by_kernel = {each.name: each for each in kernels}
    assert set(by_kernel) == {"linear_kernel", "nvjet_head", "paged_attention_kernel"}
    assert by_kernel["linear_kernel"].spent == pytest.approx(16.0)
    assert by_kernel["nvjet_head"].least == by_part["head"].least


@pytest.mark.parametrize(
    "extra",
    [
        [Work("gemm_router", 5.0, 6.0)] * 9,  # two sets of the right size
        [Work("linear_kernel", 5.0 + i, 5.5 + i) for i in range(10)],  # more products than the model has
    ],
)
def test_what_cannot_be_told_apart_is_not_told(extra: list[Work]) -> None:
    parts, kernels = reached([*step(), *extra], 1, products(CONFIG, "bfloat16", 1), None, LIMITS)
    assert (parts, kernels) == ([], [])


def test_limits_are_measured() -> None:
    found = measure(torch.device("cpu"), "float32")
    assert 1e7 < found.bandwidth < 1e13
    assert 1e8 < found.flops < 1e15
    assert found.seconds(Need("", found.bandwidth, 0)) == 1
    assert found.seconds(Need("", 0, found.flops * 2)) == 2
