"""The search for AWQ's factors, and SmoothQuant's formula."""

from __future__ import annotations

import math

import pytest
import torch

from engines.native.quant.scheme import WeightScheme
from plugins.quantization.algorithms.awq import search_factors, weight_means, widened
from plugins.quantization.algorithms.smoothquant import smooth_factors
from plugins.quantization.errors import QuantizationFailed

SCHEME = WeightScheme("int", 4, "group", 32, symmetric=False)


def test_hot_channels_get_digits() -> None:
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 128, generator=random)
    x = torch.randn(400, 128, generator=random)
    x[:, ::16] *= 30

    def loss(factors: torch.Tensor) -> float:
        return float((x @ (widened(weight, factors, SCHEME, torch.float32) - weight).t()).square().sum())

    factors, ratio = search_factors(x.abs().mean(0), weight_means(weight, SCHEME), loss, "layers.0.down")
    assert 0 < ratio < 1
    assert loss(factors) < 0.5 * loss(torch.ones(128))
    assert factors[::16].min() > factors[1:16].max()


def test_no_factors_where_none_help() -> None:
    factors, ratio = search_factors(
        torch.rand(16), torch.rand(16), lambda factors: float((factors - 1).square().sum()), "layers.0.o"
    )
    assert ratio == -1
    assert torch.equal(factors, torch.ones(16))


def test_no_finite_loss_names_the_product() -> None:
    """Case 30."""
    with pytest.raises(QuantizationFailed, match=r"layers\.7\.gate_up: AWQ finds no finite loss"):
        search_factors(torch.rand(16), torch.rand(16), lambda factors: math.nan, "layers.7.gate_up")


def test_a_ratio_without_a_finite_loss_is_passed_over() -> None:
    losses = iter([math.inf, math.nan, 3.0, math.inf, 2.0] + [5.0] * 16)
    _, ratio = search_factors(torch.rand(16), torch.rand(16), lambda factors: next(losses), "layers.7.gate_up")
    assert ratio == pytest.approx(3 / 20)


def test_smoothquant_evens_both_sides_out() -> None:
    activations, weights = torch.tensor([100.0, 1.0, 0.0, 4.0]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    factors = smooth_factors(activations, weights, 0.5)
    assert factors.tolist() == pytest.approx([10.0, 1.0, 1.0, 1.0])
    assert (activations / factors)[0] == (weights * factors)[0]
