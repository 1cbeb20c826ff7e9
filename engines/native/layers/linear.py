"""Matrix products with a model's weights. How a weight is kept is a method by name; the model only calls the result."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Linear = Callable[[torch.Tensor], torch.Tensor]
"""x [t, in] → [t, out]."""

Method = Callable[[torch.Tensor, torch.Tensor | None], Linear]
"""(weight [out, in], bias [out] or None) → the layer."""


WEIGHT_MAX = 63  # 255 × 63 × 2 fits in 16 bits


class DenseLinear:
    """Weight [out, in] and bias [out], in the dtype of the activations."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class TransposedLinear:
    """Weight kept as [in, out]: on a CPU one row times it runs at up to twice the speed of the usual layout, because
    the sums of the outputs go on in registers side by side. For a tied head, whose columns are the embedding."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight.t().contiguous(), bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return torch.mm(x, self.weight)
        return torch.addmm(self.bias, x, self.weight)


class PackedLinear:
    """float32 weight in oneDNN's blocked layout. Against F.linear on two AVX2 cores: 1.4 times as fast for one row,
    2 for eight, 1.3 for 512."""

    PACK_FOR = 512  # rows that the layout is chosen for; it serves few rows as well

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), self.PACK_FOR)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self._product(x, self._packed, self._bias, "none", [], "")
        return y

    @staticmethod
    def available() -> bool:
        """Whether this torch has the operations: builds without oneDNN do not."""
        return hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class DynamicInt8Linear:
    """int8 weight, one scale per output row; activations are quantized per token. CPU only (FBGEMM).

    On CPUs without VNNI the kernel adds pairs of products in 16 bits, which 8 bits times 8 bits overflow. So weights
    keep to 7 bits (±63) and activations take 8: measured better than the other way round, since activations have the
    outliers (SmolLM2 on four windows of WikiText-2: perplexity +2.8 % against float32).
    The kernel has one range for all tokens of a call, and a few tokens have activations a hundred times the usual.
    So each token is first mapped onto 0 … 1 by its own least and greatest value, and the product mapped back:
    W x = span × W ((x − low) / span) + low × W 1. What a token gets then depends on no other token of the call.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        weight = weight.float()
        scales = (weight.abs().amax(dim=1) / WEIGHT_MAX).clamp_(min=1e-12)
        zeros = torch.zeros_like(scales, dtype=torch.int64)
        quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._row_sums = quantized.dequantize().sum(dim=1)
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self.packed_bytes = weight.numel()
        self._bias = None if bias is None else bias.float()
        self._product = torch.ops.quantized.linear_dynamic

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        low = x.amin(dim=1, keepdim=True)  # two calls: aminmax takes three times as long
        span = x.amax(dim=1, keepdim=True).sub_(low).clamp_(min=1e-12)
        y: torch.Tensor = self._product((x - low).div_(span), self._packed, False)
        y.mul_(span).addcmul_(low, self._row_sums)
        return y if self._bias is None else y.add_(self._bias)


class CappedLinear:
    """What `linear` gives, kept within ±cap: cap × tanh(y / cap)."""

    def __init__(self, linear: Linear, cap: float) -> None:
        self._linear, self._cap = linear, cap

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._linear(x).div_(self._cap).tanh_().mul_(self._cap)


def method_for(dtype: str, device_type: str, *, strict: bool = False) -> Method:
    """How linear layers keep their weights, for an engine of `dtype` on "cpu" or "cuda". strict: a row's result may not
    depend on the rows beside it."""
    if strict and device_type == "cuda":
        from engines.native.layers.fixed_gpu import FixedLinear  # Triton is imported only where it runs

        return FixedLinear
    if dtype == "int8":
        return DynamicInt8Linear
    if device_type == "cpu" and dtype == "float32":
        return PackedLinear if PackedLinear.available() else TransposedLinear
    return DenseLinear
