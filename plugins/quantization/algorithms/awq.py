"""AWQ (Lin et al., https://arxiv.org/abs/2306.00978): channels whose activations are large are widened before rounding,
as far as the error of what the layer puts out says, so that they keep their digits."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from engines.native.quant.scheme import WeightScheme
from plugins.quantization.algorithms.grid import Tiling, grid_of
from plugins.quantization.errors import QuantizationFailed

STEPS = 20


def weight_means(weight: torch.Tensor, scheme: WeightScheme) -> torch.Tensor:
    """Mean over the outputs of |w| as a share of its group's greatest, float32 [in]. weight: [out, in], all that read
    the channels."""
    tiling = Tiling.of(scheme, (weight.shape[0], weight.shape[1]))
    tops = tiling.tiles(weight.abs()).amax(-1).clamp(min=1e-12)
    return (weight.abs() / tiling.spread(tops)).mean(0)


def widened(weight: torch.Tensor, factors: torch.Tensor, scheme: WeightScheme, dtype: torch.dtype) -> torch.Tensor:
    """What weight [out, in] becomes that is multiplied by the factors [in], rounded, and divided again. dtype: of the
    scales."""
    wide = weight * factors
    return grid_of(wide, scheme, dtype).nearest(wide).div_(factors)


def search_factors(
    activations: torch.Tensor, weights: torch.Tensor, loss: Callable[[torch.Tensor], float], name: str
) -> tuple[torch.Tensor, float]:
    """The factors of the input channels (float32 [in]) that cost least, and their ratio; −1 where no factors are best.

    activations: mean |x| of each channel; weights: `weight_means`. Tries x̄^r / (w̄^(1−r) + 1e-4) for r = 0, 0.05 … 0.95,
    scaled so that the greatest times the least is 1. loss: of factors, the squared error of the outputs of what the
    channels go into. name: of the product, for messages. Raises QuantizationFailed where no loss is finite.
    """
    best = torch.ones_like(activations)
    least, ratio = loss(best), -1.0
    if not math.isfinite(least):
        least = math.inf
    for step in range(STEPS):
        share = step / STEPS
        factors = (activations**share / (weights ** (1 - share) + 1e-4)).clamp_(min=1e-4)
        factors /= (factors.max() * factors.min()).sqrt()
        factors = torch.where(torch.isfinite(factors) & (factors > 0), factors, 1.0)
        found = loss(factors)
        if math.isfinite(found) and found < least:
            best, least, ratio = factors, found, share
    if not math.isfinite(least):
        raise QuantizationFailed(
            f"{name}: AWQ finds no finite loss with any factors, so its activations or weights overflow; "
            "keep this product in 16 bits (option keep) or use GPTQ"
        )
    return best, ratio
