"""Products with weights that a checkpoint keeps in 4 or 8 bits. Which method serves one is chosen when it is loaded:
the first, by name, that takes the weight where it is. What none takes is dequantized, counted and said.

A plugin adds methods by entry points in the group `tursiops.linear_methods`, whose names come before the built-in ones.
"""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

import torch

from engines.native.layers.embedding import Int8Table
from engines.native.layers.linear import Linear
from engines.native.quant.weight import QuantizedWeight

log = logging.getLogger(__name__)

GROUP = "tursiops.linear_methods"
DEQUANTIZED = "dequantized"
"""Stands for a method's name where no method takes a weight."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where products are made. dtype: of activations. strict: a row may not depend on the rows beside it."""

    device: torch.device
    dtype: torch.dtype
    strict: bool = False


class QuantizedMethod(Protocol):
    """One way to multiply with quantized weights. Has no state: one object serves all layers."""

    def refusal(self, weight: QuantizedWeight, place: Place) -> str:
        """Why it doesn't take the weight there, in a few words; "" where it does. `weight` may still lie on the CPU."""
        ...

    def make(self, weight: QuantizedWeight, bias: torch.Tensor | None, place: Place) -> Linear:
        """weight: on the CPU or on the place's device. bias: [out], in the activations' dtype, on the device."""
        ...


METHODS: dict[str, dict[str, str]] = {
    "cpu": {
        "int8_exact": "engines.native.layers.quantized_cpu:Int8Method",
        "int4_packed": "engines.native.layers.quantized_cpu:Int4Method",
        "float16": "engines.native.layers.quantized_cpu:HalfMethod",
    },
    "cuda": {"packed": "engines.native.layers.quantized_gpu:GpuMethod"},
}
"""Device type → name → where the method is, in the order in which they are asked. Imported when first asked."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """name: DEQUANTIZED where `method` is None; `reason` then says what each method had against it."""

    name: str
    method: QuantizedMethod | None
    reason: str = ""


def choose(weight: QuantizedWeight, place: Place) -> Chosen:
    """The first method that takes `weight`."""
    refusals = []
    for name, method in methods(place.device.type):
        refusal = method.refusal(weight, place)
        if not refusal:
            return Chosen(name, method)
        refusals.append(f"{name}: {refusal}")
    return Chosen(DEQUANTIZED, None, "; ".join(refusals) or f"no method for {place.device.type}")


@cache
def methods(device_type: str) -> Sequence[tuple[str, QuantizedMethod]]:
    """All by name, in the order in which they are asked. Raises ValueError for two of one name."""
    found: dict[str, QuantizedMethod] = {}
    for point in entry_points(group=GROUP):
        device, _, name = point.name.partition(".")
        if device == device_type:
            found[_new(name or point.name, found, point.value)] = point.load()()
    for name, where in METHODS[device_type].items():
        module, _, attribute = where.partition(":")
        found[_new(name, found, where)] = getattr(importlib.import_module(module), attribute)()
    return list(found.items())


def _new(name: str, found: dict[str, QuantizedMethod], where: str) -> str:
    if name in found:
        raise ValueError(f"two linear methods are called {name!r}: {type(found[name]).__module__} and {where}")
    return name


@dataclass(slots=True)
class Served:
    """Which method serves how many products of a model. dequantized: why, and of how many products."""

    methods: Counter[str] = field(default_factory=Counter)
    dequantized: Counter[str] = field(default_factory=Counter)

    def count(self, name: str, reason: str = "") -> None:
        self.methods[name] += 1
        if name == DEQUANTIZED:
            self.dequantized[reason] += 1

    def facts(self) -> dict[str, Any]:
        """{methods: {name: products}, dequantized: products, reasons: {reason: products}}; {} where nothing was
        quantized."""
        if not self.methods:
            return {}
        return {
            "methods": dict(self.methods),
            "dequantized": self.dequantized.total(),
            "reasons": dict(self.dequantized),
        }

    def tell(self) -> None:
        """One line in the log, and a warning for each reason to dequantize."""
        if self.methods:
            log.info("quantized products by method: %s", ", ".join(f"{n} {c}" for n, c in self.methods.items()))
        for reason, products in self.dequantized.items():
            log.warning("%d quantized products were dequantized at load and take their full size: %s", products, reason)


class JoinedLinear:
    """Products of one input with weights that can't be one weight, their outputs after each other: parts of q, k, v in
    schemes of their own each keep the bytes and the numbers that their checkpoint promised."""

    def __init__(self, parts: Sequence[Linear]) -> None:
        self.parts = list(parts)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


class CenteredLinear:
    """What a product gives to the residual stream, less its mean, where LayerNorm was made RMSNorm: what is worked into
    a float weight is done to the output of one whose bits stay as they are."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = self._linear(x)
        return (y - y.float().mean(-1, keepdim=True)).to(y.dtype)


class QuantizedEmbedding:
    """Rows of a quantized table [vocab, hidden], each dequantized when it is looked up."""

    def __init__(self, table: QuantizedWeight, dtype: torch.dtype) -> None:
        self.table, self.dtype = table, dtype

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table.rows(ids).dequantize(self.dtype)


def int8_table(table: QuantizedWeight) -> Int8Table | None:
    """The table where it is int8 with one scale per row, as the lookups of 8-bit tables read it."""
    scheme = table.scheme
    if (scheme.kind, scheme.bits, scheme.strategy) != ("int", 8, "channel") or table.zeros is not None:
        return None
    return Int8Table(table.values, table.scales.float().flatten())


def scaled(weight: QuantizedWeight, factor: float) -> QuantizedWeight:
    """factor × weight: its values stay, its scales and offsets become float32."""
    if factor == 1:
        return weight
    offsets = None if weight.offsets is None else weight.offsets.float() * factor
    return replace(weight, scales=weight.scales.float() * factor, offsets=offsets)
