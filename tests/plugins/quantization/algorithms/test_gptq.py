"""GPTQ against the textbook: the explicit inverse, one column after the other, in float64."""

from __future__ import annotations

import pytest
import torch

from engines.native.quant.scheme import WeightScheme
from plugins.quantization.algorithms.gptq import NotPositiveDefinite, gptq
from plugins.quantization.algorithms.grid import quantize_rtn

OUT, IN = 24, 192


def _problem(seed: int = 0, tokens: int = 600) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and correlated inputs."""
    random = torch.Generator().manual_seed(seed)
    mixing = torch.randn(IN, IN, generator=random) * 0.3 + torch.eye(IN)
    return torch.randn(OUT, IN, generator=random), torch.randn(tokens, IN, generator=random) @ mixing


def _textbook(weight: torch.Tensor, hessian: torch.Tensor, scheme: WeightScheme, order: list[int]) -> torch.Tensor:
    """Optimal brain quantization in a given order, its inverse shrunk by elimination after each column. Scales of
    groups: of the group as it is when its first column comes, or of the weights at first where `order` is another."""
    weight, hessian = weight.double(), hessian.double()
    damped = hessian + 0.01 * hessian.diagonal().mean() * torch.eye(IN, dtype=torch.float64)
    inverse = torch.linalg.inv(damped)
    size = scheme.group or IN
    top = 2 ** (scheme.bits - 1) - 1
    scales = weight.float().view(OUT, -1, size).abs().amax(-1) / top
    result = torch.empty_like(weight)
    left = list(range(IN))
    for column in order:
        if not scheme.actorder and scheme.group and column % size == 0:
            scales[:, column // size] = weight[:, column : column + size].float().abs().amax(-1) / top
        scale = scales[:, column // size]
        result[:, column] = (weight[:, column] / scale).round().clamp(-top - 1, top) * scale
        error = (weight[:, column] - result[:, column]) / inverse[column, column]
        left.remove(column)
        weight[:, left] -= torch.outer(error, inverse[column, left])
        inverse -= torch.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    return result


@pytest.mark.parametrize(
    "scheme",
    [
        WeightScheme("int", 4, "group", 64),
        WeightScheme("int", 4, "group", 96),  # its groups cross the blocks of 128 columns
        WeightScheme("int", 4, "group", 32, actorder="static"),
        WeightScheme("int", 8, "channel"),
    ],
    ids=str,
)
def test_textbook(scheme: WeightScheme) -> None:
    weight, x = _problem()
    hessian = (x.t() @ x).double()
    order = torch.argsort(hessian.diagonal(), descending=True, stable=True) if scheme.actorder else torch.arange(IN)
    made, report = gptq(weight, hessian, scheme)
    wanted = _textbook(weight, hessian, scheme, order.tolist())
    torch.testing.assert_close(made.dequantize().double(), wanted, rtol=1e-6, atol=1e-6)
    assert report.damping == 0.01
    assert report.dead == 0


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("actorder", ["", "static"])
@pytest.mark.parametrize("clip", [False, True])
def test_loses_less_than_rounding_to_nearest(symmetric: bool, actorder: str, clip: bool) -> None:
    weight, x = _problem(1)
    scheme = WeightScheme("int", 4, "group", 64, symmetric=symmetric, actorder=actorder)
    made, report = gptq(weight, x.t() @ x, scheme, clip_search=clip)
    rtn = quantize_rtn(weight, scheme, clip_search=clip)
    lost, nearest = ((x @ (each.dequantize() - weight).t()).square().sum() for each in (made, rtn))
    assert lost < 0.5 * nearest
    # Of what GPTQ counts as it goes, the damping's share isn't in the outputs: it is a bound, and not a loose one.
    assert float(lost) <= 2 * report.loss <= 1.3 * float(lost)


def test_fp8_too() -> None:
    weight, x = _problem(2)
    scheme = WeightScheme("float", 8, "channel")
    made, _ = gptq(weight, x.t() @ x, scheme)
    rtn = quantize_rtn(weight, scheme)
    lost, nearest = ((x @ (each.dequantize() - weight).t()).norm() for each in (made, rtn))
    assert lost < 0.8 * nearest


def test_dead_inputs_cost_nothing() -> None:
    weight, x = _problem(3)
    x[:, [5, 80]] = 0
    made, report = gptq(weight, x.t() @ x, WeightScheme("int", 4, "group", 64))
    assert report.dead == 2
    assert not bool(made.dequantize()[:, [5, 80]].any())


def test_damping_is_raised_until_a_singular_hessian_can_be_inverted() -> None:
    """Case 28: a layer's Hessian that isn't invertible."""
    weight, x = _problem(4)
    hessian = x.t() @ x
    low = float(torch.linalg.eigvalsh(hessian)[0])
    mean = float(hessian.diagonal().mean())
    broken = hessian - (low + 0.05 * mean) * torch.eye(IN)  # its least eigenvalue is −5 % of the mean diagonal
    made, report = gptq(weight, broken, WeightScheme("int", 4, "group", 64))
    assert report.damping == pytest.approx(0.1)  # 1 % isn't enough, ten times as much is
    assert bool(torch.isfinite(made.dequantize()).all())


def test_a_hessian_that_no_damping_helps() -> None:
    weight, _ = _problem(5)
    with pytest.raises(NotPositiveDefinite, match="even with damping 10"):
        gptq(weight, torch.eye(IN) - 100 * torch.ones(IN, IN), WeightScheme("int", 4, "group", 64))
    broken = torch.eye(IN)
    broken[3, 4] = broken[4, 3] = torch.nan
    with pytest.raises(NotPositiveDefinite):
        gptq(weight, broken, WeightScheme("int", 4, "group", 64))
