"""Products with quantized weights on a GPU. A weight is packed once, when it is loaded (`kernels.packed`), and serves
any number of rows from there:

few rows   (a decode step) read each weight as 4 or 8 bits and widen it in registers (`kernels.upcast`). Where the
           checkpoint has 8-bit activations, what is behind a norm is multiplied in 8 bits (`kernels.scaled`): the
           norm quantizes on its way, and nothing is widened. What no norm is in front of (attention's output, silu ×
           up) stays in 16 bits: a kernel that quantizes it would cost what the product in 8 bits saves.
more rows  are bound by the tensor cores. Where the checkpoint has 8-bit activations, products of 8 bits run at twice
           the rate (`kernels.scaled`, cuBLAS); where it has none, the weight is widened into a buffer that all layers
           share, and cuBLAS multiplies.

Without fp8 tensor cores (before sm_89) fp8 weights are served as weights without 8-bit activations are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F

from engines.native.kernels import INTERPRETED, fused, packed
from engines.native.kernels.linear import NARROW
from engines.native.kernels.packed import BLOCK, Packed
from engines.native.kernels.quantize import (
    GIVEN,
    GROUPS,
    TOKEN,
    QuantizedRows,
    add_rms_norm_quantize,
    quantize,
    silu_mul_quantize,
)
from engines.native.kernels.scaled import scaled_gated, scaled_linear, scaled_product
from engines.native.kernels.upcast import upcast_gated, upcast_linear, widen
from engines.native.layers.linear import Linear
from engines.native.layers.quantized import Place
from engines.native.ops.base import AddNorm
from engines.native.quant.scheme import WeightScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles, unpack_nibbles

log = logging.getLogger(__name__)

FEW_ROWS = 64
"""At most so many that no norm quantizes are multiplied in 16 bits although the checkpoint has 8-bit activations."""
MORE_ROWS = 256
"""At most so many go through a kernel that reads the weight once; more are a library's."""
THOUSANDS = 4096
"""Rows from which on our fp8 product of large tiles is as fast as cuBLAS (down: by a tenth faster)."""
WIDEN_FROM = 512
"""Rows from which on widening a weight into a buffer costs less than what cuBLAS gains."""


@dataclass(slots=True)
class Buffer:
    """Room for one widened weight of a device; the layers use it one after another, on one stream."""

    values: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)

    def reserve(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        """At load, since a captured graph keeps the address."""
        if dtype not in self.values or self.values[dtype].numel() < size:
            self.values[dtype] = torch.empty(size, dtype=dtype, device=device)

    def matrix(self, outputs: int, inputs: int, dtype: torch.dtype) -> torch.Tensor:
        return self.values[dtype][: outputs * inputs].view(outputs, inputs)


_BUFFERS: dict[torch.device, Buffer] = {}
"""One for each device: scratch, nothing that anyone reads later."""


class UpcastLinear:
    """Weights of 4 or 8 bits, activations of 16. permutation: int64 [in], which input is read first, second, …, where
    the groups of the checkpoint are not in the order of its inputs; None where they are."""

    def __init__(
        self, weight: Packed, bias: torch.Tensor | None, dtype: torch.dtype, permutation: torch.Tensor | None = None
    ) -> None:
        self.weight, self.bias, self._permutation = weight, bias, permutation
        self._reserve(dtype)

    def _reserve(self, dtype: torch.dtype) -> None:
        device = self.weight.words.device
        self._buffer = _BUFFERS.setdefault(device, Buffer())
        self._buffer.reserve(self.weight.outputs * self.weight.inputs, dtype, device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [t, in] → [t, out]."""
        return self._product(self._ordered(x), splits=False)

    def summands(self, x: torch.Tensor) -> torch.Tensor:
        """[t, out], or float32 summands of it [splits, t, out]."""
        return self._product(self._ordered(x), splits=True)

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """silu(first half of the outputs) × second half, [t, out / 2]."""
        x = self._ordered(x)
        if len(x) < WIDEN_FROM:
            return upcast_gated(x, self.weight, self.bias)
        return fused.silu_mul(self._widened(x))

    def _ordered(self, x: torch.Tensor) -> torch.Tensor:
        return x if self._permutation is None else x.index_select(1, self._permutation)

    def _product(self, x: torch.Tensor, splits: bool) -> torch.Tensor:
        if not len(x):
            return x.new_empty(0, self.weight.outputs)
        if len(x) < WIDEN_FROM:
            return upcast_linear(x, self.weight, self.bias, splits=splits)
        return self._widened(x)

    def _widened(self, x: torch.Tensor) -> torch.Tensor:
        matrix = self._buffer.matrix(self.weight.outputs, self.weight.inputs, x.dtype)
        return F.linear(x, widen(self.weight, matrix), self.bias)


class ScaledLinear(UpcastLinear):
    """Weights of 8 bits, and activations of 8 bits where there are many rows. Takes rows that a kernel before it has
    quantized, too.

    kind: what shares a scale of the activations (`kernels.quantize`); given: the scale, float32 [1], of GIVEN.
    """

    def __init__(
        self, weight: Packed, bias: torch.Tensor | None, dtype: torch.dtype, kind: str, given: torch.Tensor | None
    ) -> None:
        super().__init__(weight, bias, dtype)
        self.kind, self.given = kind, given
        self.values = torch.float8_e4m3fn if weight.form == "fp8" else torch.int8
        self._many = _many(weight, kind)

    def _reserve(self, dtype: torch.dtype) -> None:
        """Nothing is widened into a buffer."""

    def quantizes(self, rows: int, normed: bool = False) -> bool:
        """Whether so many rows, behind a norm or not, are multiplied in 8 bits."""
        return rows > FEW_ROWS or (normed and self.kind != GROUPS)

    def gated(self, x: torch.Tensor | QuantizedRows) -> torch.Tensor:
        if isinstance(x, torch.Tensor) and not self.quantizes(len(x)):
            return super().gated(x)
        rows = self._quantized(x)
        if not self._library(len(rows), gated=True):
            return scaled_gated(rows, self.weight, self.bias)
        return fused.silu_mul(self._many(rows, self.weight, self.bias))

    def gated_for(self, down: ScaledLinear, x: torch.Tensor | QuantizedRows) -> torch.Tensor | QuantizedRows:
        """`gated`, as the product `down` reads it best."""
        if not self._library(len(x), gated=True):
            return self.gated(x)
        whole = self._many(self._quantized(x), self.weight, self.bias)
        return silu_mul_quantize(whole, down.values, down.kind, down.given)

    def _product(self, x: torch.Tensor | QuantizedRows, splits: bool) -> torch.Tensor:
        if isinstance(x, torch.Tensor) and not self.quantizes(len(x)):
            return super()._product(x, splits)
        rows = self._quantized(x)
        if not self._library(len(rows)):
            return scaled_linear(rows, self.weight, self.bias, splits=splits)
        return self._many(rows, self.weight, self.bias)

    def _library(self, rows: int, gated: bool = False) -> bool:
        """Whether `_many` is the faster one: measured on an H200 (docs/benchmarks/quantized_gpu.h200.json)."""
        if self._many is _fp8_product and rows > FEW_ROWS:
            return rows > (FEW_ROWS if gated else MORE_ROWS if self.weight.outputs <= NARROW else MORE_ROWS // 2)
        return rows > MORE_ROWS

    def _ordered(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def _quantized(self, x: torch.Tensor | QuantizedRows) -> QuantizedRows:
        if isinstance(x, QuantizedRows):
            return x
        return quantize(x, self.values, self.kind, self.given)


class NormFor:
    """`Ops.add_rms_norm` whose norm the product `reader` alone reads: quantized, where it quantizes."""

    def __init__(self, reader: ScaledLinear, plain: AddNorm) -> None:
        self._reader, self._plain = reader, plain

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        reader = self._reader
        if not reader.quantizes(len(residual), normed=True):
            return self._plain(x, residual, weight, eps)
        rows = add_rms_norm_quantize(x, residual, weight, eps, reader.values, reader.kind, reader.given)
        return cast(torch.Tensor, rows), residual  # for `reader` only, which knows both


class GatedFor:
    """`Ops.silu_gated` whose result the product `down` alone reads."""

    def __init__(self, down: ScaledLinear, plain: Callable[[Linear, torch.Tensor], torch.Tensor]) -> None:
        self._down, self._plain = down, plain

    def __call__(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(gate_up, ScaledLinear):
            return self._plain(gate_up, x)
        return cast(torch.Tensor, gate_up.gated_for(self._down, x))


def _fp8_product(x: QuantizedRows, weight: Packed, bias: torch.Tensor | None) -> torch.Tensor:
    """In the fast accumulation: sums keep 14 bits (as vLLM's do). By the library up to some thousand rows."""
    if len(x) >= THOUSANDS:
        return scaled_product(x, weight, bias)
    scales = x.scales.expand(len(x))[:, None].contiguous()  # a copy where one scale is given
    out: torch.Tensor = torch._scaled_mm(
        x.values, weight.bytes.t(), scales, weight.scales, out_dtype=x.dtype, use_fast_accum=True
    )  # fmt: skip
    return out if bias is None else out.add_(bias)


def _any_product(x: QuantizedRows, weight: Packed, bias: torch.Tensor | None) -> torch.Tensor:
    return scaled_linear(x, weight, bias, splits=False)


def _many(weight: Packed, kind: str) -> Callable[[QuantizedRows, Packed, torch.Tensor | None], torch.Tensor]:
    """The fastest product of many rows on the weight's device."""
    device = weight.words.device
    if kind == GROUPS or device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return _any_product
    if weight.form == "int8":
        return scaled_product
    return _any_product if weight.outputs % 16 else _fp8_product


class GpuMethod:
    """Implements `layers.quantized.QuantizedMethod` for int4, int8 and fp8, weight-only or with 8-bit activations."""

    def refusal(self, weight: QuantizedWeight, place: Place) -> str:
        scheme = weight.scheme
        form = form_of(scheme)
        if form is None:
            return f"no kernel for {scheme}"
        if place.dtype not in (torch.bfloat16, torch.float16):
            return f"activations are {str(place.dtype).removeprefix('torch.')}, and kernels take 16 bits"
        if place.strict:
            return "strict, and the products' sums depend on how many rows there are"
        if weight.offsets is not None:
            return "offsets of groups (GGUF's minima) have no kernel"
        if weight.zeros is not None and (form != "int4" or scheme.strategy != "group"):
            return f"zeros of {scheme} have no kernel"
        if scheme.strategy == "group" and not packed.fits(form, scheme.group):
            least = BLOCK * packed.FORMS[form] // 16
            return f"groups of {scheme.group} inputs: kernels take multiples of {least} for {form}"
        if scheme.block is not None and (scheme.block[0] != BLOCK or not packed.fits(form, scheme.block[1])):
            return f"blocks of {scheme.block[0]} × {scheme.block[1]}: kernels take {BLOCK} outputs"
        if weight.groups_of is not None and not bool((torch.bincount(weight.groups_of) == scheme.group).all()):
            return f"act-order whose groups do not all have {scheme.group} inputs"
        return ""

    def make(self, weight: QuantizedWeight, bias: torch.Tensor | None, place: Place) -> Linear:
        weight = weight.to(place.device)
        ordered, permutation = _in_order(weight)
        made, activations = pack(ordered), weight.activations
        if activations is None or permutation is not None or not _has_products(made, place.device):
            return UpcastLinear(made, bias, place.dtype, permutation)
        kind = _kind(weight, made)
        if kind is None:
            return UpcastLinear(made, bias, place.dtype)
        given = None if kind != GIVEN or weight.input_scale is None else weight.input_scale.float().reshape(1)
        return ScaledLinear(made, bias, place.dtype, kind, given)


def form_of(scheme: WeightScheme) -> str | None:
    """The key of packed.FORMS, or None where there is none."""
    if scheme.kind == "float":
        return "fp8" if scheme.bits == 8 else None
    return {4: "int4", 8: "int8"}.get(scheme.bits)


def pack(weight: QuantizedWeight) -> Packed:
    """`weight`, its groups in the order of its inputs, as kernels read it; on its device."""
    outputs, inputs = weight.shape
    scheme = weight.scheme
    form = form_of(scheme)
    assert form is not None
    values = unpack_nibbles(weight.values, inputs) if form == "int4" else weight.values
    scales, group, height = weight.scales, 0, 1
    if scheme.block is not None:
        group, height = scheme.block[1], scheme.block[0]
    elif scheme.strategy == "group" and weight.scales.shape[1] > 1:
        group = scheme.group
    elif scheme.strategy == "tensor":
        scales = scales.expand(outputs, 1)
    if not group or scales.dtype not in (torch.bfloat16, torch.float16):
        scales = scales.float()
    zeros = None if weight.zeros is None else weight.zeros.t().contiguous()
    part = packed.part_of(form, inputs, group)
    return Packed(form, packed.pack(values, form, part), scales.t().contiguous(), zeros, inputs, group, height, part)


def _in_order(weight: QuantizedWeight) -> tuple[QuantizedWeight, torch.Tensor | None]:
    """Inputs sorted by their groups, and the permutation that did it, where they were not."""
    if weight.groups_of is None:
        return weight, None
    inputs = weight.shape[1]
    permutation = torch.argsort(weight.groups_of, stable=True)
    four = weight.scheme.bits == 4
    values = (unpack_nibbles(weight.values, inputs) if four else weight.values)[:, permutation]
    if four:
        values = pack_nibbles(values)
    in_order = bool((permutation == torch.arange(inputs, device=permutation.device)).all())
    changed = QuantizedWeight(
        weight.scheme, values, weight.scales, weight.zeros, activations=weight.activations, inputs=weight.inputs
    )  # fmt: skip
    return changed, None if in_order else permutation


def _has_products(weight: Packed, device: torch.device) -> bool:
    """Whether tensor cores of the device multiply 8 bits with 8 bits of this form."""
    if weight.form == "int4":
        return False
    if device.type != "cuda":
        return INTERPRETED
    capability = torch.cuda.get_device_capability(device)
    return weight.form == "int8" or capability >= (8, 9) or _without_fp8(capability)


@cache
def _without_fp8(capability: tuple[int, int]) -> bool:
    """Said once. False."""
    log.warning(
        "FP8 needs sm_89: on this GPU (sm_%d%d) fp8 weights are multiplied with activations of 16 bits, at the "
        "speed of weights in 16 bits where there are many rows",
        *capability,
    )
    return False


def _kind(weight: QuantizedWeight, made: Packed) -> str | None:
    """How activations are scaled; None where no product of 8 bits fits the weight's scales and the activations'."""
    activations = weight.activations
    assert activations is not None
    if activations.kind != weight.scheme.kind or activations.bits != 8:
        return None
    if made.group == BLOCK:
        return GROUPS  # a scale per block of the weight asks for one per block of the activations
    if made.group:
        return None
    return TOKEN if activations.dynamic or weight.input_scale is None else GIVEN
