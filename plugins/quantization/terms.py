"""What a quantize job of the built-in backend is told, and what it gives back layer by layer. Plain data."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from engines.native.quant.scheme import KvScheme, LinearScheme
from engines.native.quant.weight import QuantizedWeight

__all__ = ["GROUPS", "GroupReport", "LayerResult", "LayerSink", "Recipe"]

GROUPS = ("qkv", "o", "gate_up", "down")
"""The products of a layer, in the order in which they run. What one product computes reads one input and takes one
scheme, whether the checkpoint keeps it in one tensor or in three."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """linear: of every product that `keep` and `schemes` don't name; None: they stay in 16 bits.

    smoothing: what is done before rounding ("smoothquant": Xiao et al., "awq": Lin et al.). rounding: "rtn" or "gptq".
    clip: scales are searched for (ratios 1 … 0.5 of a group's range; by the error of the outputs where calibration
    tokens are there, else of the weights). keep: fused groups that stay in 16 bits: layers ("layers.0") or shell
    patterns of "layers.<n>.<group>" ("layers.*.down"). schemes: such a name, without patterns → its own scheme, for
    mixed precision. damping: share of the Hessian's mean diagonal; raised tenfold up to three times. on_fallback: what
    becomes of a group whose Hessian isn't positive definite even then: "record" rounds it to nearest and says so,
    "fail" ends the job. scale_dtype: of the scales in the file, and what values are rounded for. embedding: the table
    in int8, one scale per row. search_tokens: on how many AWQ tries its factors.
    """

    linear: LinearScheme | None = None
    rounding: Literal["rtn", "gptq"] = "rtn"
    smoothing: Literal["", "smoothquant", "awq"] = ""
    clip: bool = False
    alpha: float = 0.5
    damping: float = 0.01
    on_fallback: Literal["record", "fail"] = "record"
    keep: tuple[str, ...] = ()
    schemes: Mapping[str, LinearScheme | None] = field(default_factory=dict)
    kv: KvScheme | None = None
    embedding: bool = False
    scale_dtype: torch.dtype = torch.float32
    search_tokens: int = 1024

    def keeps(self, index: int, group: str) -> bool:
        """Whether `keep` names the product."""
        name = f"layers.{index}.{group}"
        return any(name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern) for pattern in self.keep)

    def of(self, index: int, group: str) -> LinearScheme | None:
        """The scheme of one product; None: it stays in 16 bits."""
        if self.keeps(index, group):
            return None
        return self.schemes.get(f"layers.{index}.{group}", self.linear)

    def needs_data(self, layers: int) -> bool:
        """Whether calibration tokens have to run through the layers."""
        schemes = [self.of(index, group) for index in range(layers) for group in GROUPS]
        static = any(each and each.activations and not each.activations.dynamic for each in schemes)
        scaled = self.kv is not None and self.kv.kind == "float"
        return bool(static or scaled or (any(schemes) and (self.rounding == "gptq" or self.smoothing)))


@dataclass(frozen=True, slots=True)
class GroupReport:
    """method: "gptq", "rtn", "rtn_fallback" (GPTQ was asked for and its Hessian wasn't positive definite) or "kept".
    loss: squared error of the outputs over the calibration tokens as a share of the outputs' squares; rtn_loss: what
    rounding to nearest would have; None without calibration. damping: the share that was added at last. sqnr_db: of
    the weights, 10 log10(|W|² / |W − Q|²)."""

    group: str
    method: str
    loss: float | None = None
    rtn_loss: float | None = None
    damping: float | None = None
    sqnr_db: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One finished layer. All names are the decoder's own (`engines.native.loader.names`), all tensors as the written
    checkpoint has them (`engines.native.vocabulary.hf_export.Export` for a GGUF file).

    linears: "layers.3.q" → weight, without ".weight". floats: "layers.3.input_norm.weight" → float32, what smoothing
    changed and stays in floating point. kv_scales: float32 [1] or [kv_heads], keys and values. What is in neither is
    as in the source.
    """

    index: int
    linears: Mapping[str, QuantizedWeight]
    floats: Mapping[str, torch.Tensor]
    kv_scales: tuple[torch.Tensor, torch.Tensor] | None
    reports: tuple[GroupReport, ...]


class LayerSink(Protocol):
    """Where finished layers go: it owns them, the recipe keeps none."""

    def take(self, layer: LayerResult) -> None:
        """Called once a layer, in order; what it has taken must survive a crash before it returns."""
        ...

    def finished(self, index: int) -> LayerResult:
        """A layer that an earlier attempt handed over; asked for those below `resume_from`, in order."""
        ...

    def embedding(self, table: QuantizedWeight) -> None:
        """`Recipe.embedding`: int8 [vocab, hidden] with one scale per row."""
        ...
