"""A decoder's products from a checkpoint whose weights are quantized: parts that agree become one weight, the others
run side by side; each is served by the first method that takes it, or dequantized."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from engines.native.layers.linear import Linear, Method
from engines.native.layers.quantized import CenteredLinear, JoinedLinear, Place, Served, choose
from engines.native.loader.errors import BadModel
from engines.native.quant.weight import QuantizedWeight

Part = QuantizedWeight | torch.Tensor
"""Of a merged product: quantized, or [out, in] in the dtype of the activations."""


class Products:
    """place: where they run. dense: how a float weight is kept, also one that was dequantized."""

    def __init__(self, place: Place, dense: Method, served: Served) -> None:
        self._place, self._dense, self._served = place, dense, served

    def of(self, parts: Sequence[Part], bias: torch.Tensor | None, *, centered: bool = False) -> Linear:
        """The product whose output are those of `parts` after each other. bias: [out of all], on the device.

        Parts of one scheme are stacked into one weight. Where schemes differ (mixed precision), each runs alone and
        outputs are joined: to dequantize them would give up the memory that the recipe was made for.
        """
        made: list[Linear] = []
        first = 0
        for part in _runs(parts):
            last = first + part.shape[0]
            made.append(self._one(part, None if bias is None else bias[first:last]))
            first = last
        linear = made[0] if len(made) == 1 else JoinedLinear(made)
        return CenteredLinear(linear) if centered else linear

    def _one(self, part: Part, bias: torch.Tensor | None) -> Linear:
        if isinstance(part, torch.Tensor):
            return self._dense(part, bias)
        chosen = choose(part, self._place)
        self._served.count(chosen.name, f"{part.scheme}: {chosen.reason}")
        if chosen.method is not None:
            return chosen.method.make(part, bias, self._place)
        return self._dense(part.to(self._place.device).dequantize(self._place.dtype), bias)


def _runs(parts: Sequence[Part]) -> list[Part]:
    """Neighbours that can be one weight made one."""
    runs: list[Part] = []
    for part in parts:
        if runs and (joined := _joined(runs[-1], part)) is not None:
            runs[-1] = joined
        else:
            runs.append(part)
    return runs


def _joined(a: Part, b: Part) -> Part | None:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.cat([a, b])
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return None
    try:
        return QuantizedWeight.stacked([a, b])
    except BadModel:  # other schemes: that is what mixed precision is
        return None


def turned(part: Part, reorder: Callable[[torch.Tensor], torch.Tensor]) -> Part:
    """`part` with its rows in another order. reorder: of any tensor with as many rows, to the new order."""
    if isinstance(part, torch.Tensor):
        return reorder(part)
    return part.rows(reorder(torch.arange(part.shape[0])))
