"""Products with quantized weights on a CPU, activations in float32, by torch's own packed operators.

What they are good for (2.13, AVX2 without VNNI; a matrix of 49,152 × 576 on two cores, ms for 1 and 8 rows; float32
takes 34 and 48): FBGEMM's products of 8 bits add pairs in 16 bits, which 8 bits times 8 bits overflow, but not halves
of 7 bits (4.3, 10). `_weight_int4pack_mm_for_cpu` is vectorized for bfloat16 alone, and rounds activations, scales and
outputs to it (5.6, 35; no good for many rows). FBGEMM's float16 weights take float32 activations (16, 33).
`_weight_int8pack_mm` is the int4 operator's like (21, 52) and `_dyn_quant_matmul_4bit` is for ARM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from engines.native.layers.linear import Linear
from engines.native.layers.quantized import Place
from engines.native.quant.scheme import ActivationScheme
from engines.native.quant.weight import QuantizedWeight, unpack_nibbles

E4M3_MAX = 448.0
INT8_MAX = 127.0
_TINY = 1e-12


class Int8Method:
    """int8 weights per channel or tensor with int8 activations per token, as W8A8 checkpoints ask for: the integer
    products are exact, at a byte per weight."""

    def refusal(self, weight: QuantizedWeight, place: Place) -> str:
        scheme, activations = weight.scheme, weight.activations
        if place.dtype != torch.float32:
            return f"activations are {place.dtype}, and it has float32"
        if not hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32"):
            return "this torch has no FBGEMM"
        if (scheme.kind, scheme.bits) != ("int", 8) or scheme.strategy not in ("channel", "tensor"):
            return "its weights are int8 with a scale per channel or tensor"
        if weight.zeros is not None or weight.groups_of is not None:
            return "its weights are symmetric"
        if activations is None or (activations.kind, activations.bits) != ("int", 8):
            return "its activations are int8"
        if activations.strategy == "group":
            return "its activations have a scale per token or tensor"
        return ""

    def make(self, weight: QuantizedWeight, bias: torch.Tensor | None, place: Place) -> Linear:
        return Int8Linear(weight, bias)


class Int8Linear:
    """y = token's scale × output's scale × (integers of x) · (integers of W).

    On CPUs without VNNI FBGEMM's kernel adds pairs of products in 16 bits. So the 8 bits of an activation are split
    into two halves of 7, which are two rows of one product: 128 × 127 × 2 fits, the weights are read once, and the sum
    of both rows is the exact product.
    """

    HALF_ZERO = 64  # the unsigned value of 0: halves are −64 … 64

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None) -> None:
        outputs = weight.shape[0]
        scales = weight.scales.double().flatten().expand(outputs).contiguous()
        zeros = torch.zeros(outputs, dtype=torch.int64)
        whole = torch._make_per_channel_quantized_tensor(weight.values, scales, zeros, 0)
        self._packed = torch.ops.quantized.linear_prepack(whole, None)
        self.packed_bytes = weight.values.numel()
        self._bias = None if bias is None else bias.float()
        self._static = _static_scale(weight)
        self._product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(1, keepdim=True).div_(INT8_MAX).clamp_(min=_TINY) if self._static is None else self._static
        integers = (x / scale).round_().clamp_(-128, INT8_MAX)
        half = (integers * 0.5).floor_()
        rows = len(x)
        both: torch.Tensor = self._product(torch.cat([half, integers.sub_(half)]), 1.0, self.HALF_ZERO, self._packed)
        y = both[:rows].add_(both[rows:]).mul_(scale)
        return y if self._bias is None else y.add_(self._bias)


class Int4Method:
    """4 bits in groups, 16-bit activations: torch's packed operator for few rows, whole floats for many."""

    def refusal(self, weight: QuantizedWeight, place: Place) -> str:
        scheme = weight.scheme
        if place.dtype != torch.float32:
            return f"activations are {place.dtype}, and it has float32"
        if place.strict:
            return "few rows are multiplied otherwise than many"
        if not hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu"):
            return "this torch has no packed product of 4 bits"
        if scheme.bits != 4 or scheme.strategy != "group" or scheme.group not in (32, 64, 128, 256):
            return "its weights have 4 bits in groups of 32, 64, 128 or 256"
        if weight.groups_of is not None:
            return "its groups lie in order"
        if weight.shape[0] % 16 or weight.shape[1] % scheme.group:
            return f"a matrix of {weight.shape[0]} × {weight.shape[1]} is not cut into whole tiles and groups"
        return "" if weight.activations is None else "its activations are not quantized"

    def make(self, weight: QuantizedWeight, bias: torch.Tensor | None, place: Place) -> Linear:
        return Int4Linear(weight, bias)


class Int4Linear:
    """Few rows: activations, scales and outputs are rounded to bfloat16, sums are float32. Many rows: the weight is
    dequantized for each call and multiplied in float32, whose time many rows share. So a weight takes a byte in all,
    half of it in the operator's order."""

    MANY = 48
    """Rows from which dequantizing is cheaper than the operator's slower product."""

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None) -> None:
        self._weight = weight
        values = unpack_nibbles(weight.values, weight.shape[1]).to(torch.int32)
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1)
        self._scales_and_zeros = _scales_and_zeros(weight)
        self._bias = None if bias is None else bias.float()
        self._product = torch.ops.aten._weight_int4pack_mm_for_cpu

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) >= self.MANY:
            return F.linear(x, self._weight.dequantize(torch.float32), self._bias)
        group = self._weight.scheme.group
        y: torch.Tensor = self._product(x.bfloat16(), self._packed, group, self._scales_and_zeros).float()
        return y if self._bias is None else y.add_(self._bias)


def _scales_and_zeros(weight: QuantizedWeight) -> torch.Tensor:
    """bfloat16 [groups, out, 2], as the operator has a weight: scale × (value − 8) + zero."""
    scales = weight.scales.float()
    if weight.offsets is not None:
        zeros = weight.offsets.float() + 8 * scales
    elif weight.zeros is not None:
        zeros = (8 - weight.zeros.float()) * scales
    else:
        zeros = torch.zeros_like(scales)
    return torch.stack([scales, zeros], dim=-1).transpose(0, 1).contiguous().bfloat16()


class HalfMethod:
    """Any scheme, its weights held as float16 and multiplied with float32 activations. Integers of 8 bits and e4m3 are
    exact there, their scales are put on the outputs; where scales change along the inputs, a weight is rounded to 11
    bits. Activations are quantized as the checkpoint asks for."""

    def refusal(self, weight: QuantizedWeight, place: Place) -> str:
        if place.dtype != torch.float32:
            return f"activations are {place.dtype}, and it has float32"
        if place.strict:
            return "the sums of one row are others than those of several"
        if not hasattr(torch.ops.quantized, "linear_prepack_fp16"):
            return "this torch has no FBGEMM"
        return ""

    def make(self, weight: QuantizedWeight, bias: torch.Tensor | None, place: Place) -> Linear:
        return HalfLinear(weight, bias)


class HalfLinear:
    """Rows are kept so that their greatest value is near 1 (or as the file has them, where that is exact), and the
    outputs scaled back: float16 has no more range than a matrix needs for one row."""

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None) -> None:
        values, self._scales = _by_rows(weight)
        self._packed = torch.ops.quantized.linear_prepack_fp16(values, None)
        self.packed_bytes = 2 * values.numel()
        self._bias = None if bias is None else bias.float()
        self._activations = activations_of(weight)
        self._product = torch.ops.quantized.linear_dynamic_fp16

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._activations is not None:
            x = self._activations(x)
        y: torch.Tensor = self._product(x, self._packed)
        y.mul_(self._scales)
        return y if self._bias is None else y.add_(self._bias)


def _by_rows(weight: QuantizedWeight) -> tuple[torch.Tensor, torch.Tensor]:
    """(float32 [out, in] of float16's digits, scales [out])."""
    outputs = weight.shape[0]
    if weight.scheme.strategy in ("channel", "tensor") and weight.zeros is None and weight.scheme.bits == 8:
        return weight.values.float(), weight.scales.float().flatten().expand(outputs).contiguous()
    whole = weight.dequantize(torch.float32)
    scales = whole.abs().amax(dim=1).clamp_(min=_TINY)
    return whole.div_(scales[:, None]), scales


Activations = Callable[[torch.Tensor], torch.Tensor]
"""x float32 [t, in] → the values that it has once it is quantized and back, as a new tensor."""


def activations_of(weight: QuantizedWeight) -> Activations | None:
    """What the checkpoint does to activations; None where they stay as they are. Raises ValueError for a scheme that
    needs a scale which is not there."""
    scheme = weight.activations
    if scheme is None:
        return None
    round_to = _e4m3 if scheme.kind == "float" else _int8
    greatest = E4M3_MAX if scheme.kind == "float" else INT8_MAX
    static = _static_scale(weight)
    if static is not None:
        return lambda x: round_to(x / static).mul_(static)
    group = scheme.group if scheme.strategy == "group" else 0

    def dynamic(x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(len(x), -1, group) if group else x
        scale = parts.abs().amax(-1, keepdim=True).div_(greatest).clamp_(min=_TINY)
        rounded = round_to(parts / scale).mul_(scale)
        return rounded.flatten(-2) if group else rounded

    return dynamic


def _static_scale(weight: QuantizedWeight) -> float | None:
    scheme: ActivationScheme | None = weight.activations
    if scheme is None or scheme.dynamic:
        return None
    if weight.input_scale is None:
        raise ValueError(f"{weight.name or 'a weight'} has activations of a fixed scale, but no input_scale")
    return float(weight.input_scale)


def _int8(x: torch.Tensor) -> torch.Tensor:
    return x.round_().clamp_(-128, INT8_MAX)


def _e4m3(x: torch.Tensor) -> torch.Tensor:
    """Saturates, as GPUs' conversions do: a cast alone would make NaN of what is too great."""
    return x.clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(torch.float32)
