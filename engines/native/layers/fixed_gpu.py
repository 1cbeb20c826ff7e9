"""Strict mode's products on a GPU: one tile for any number of rows, where a library chooses by it."""

from __future__ import annotations

import torch

from engines.native.kernels.linear import fixed_linear


class FixedLinear:
    """Weight [out, in] and bias [out], in the dtype of the activations."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight, self._bias = weight.contiguous(), bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return fixed_linear(x.contiguous(), self._weight, self._bias)
