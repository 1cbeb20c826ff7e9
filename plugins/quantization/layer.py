"""One layer after the other: smoothed, rounded product by product over what is quantized already, handed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from engines.native.layers.linear import Linear
from engines.native.quant.scheme import LinearScheme
from engines.native.quant.weight import QuantizedWeight
from plugins.quantization.algorithms.gptq import NotPositiveDefinite, gptq
from plugins.quantization.algorithms.grid import FP8_MAX, check_scheme, quantize_rtn
from plugins.quantization.errors import QuantizationFailed
from plugins.quantization.model import Parts, Source
from plugins.quantization.observe import Hessian, LayerPass, Stream
from plugins.quantization.simulate import advance, product_of, replay, static_scale
from plugins.quantization.smoothing import Smoothing
from plugins.quantization.terms import GROUPS, GroupReport, LayerResult, Recipe

SEARCH_SAMPLES = 8


class LayerQuantizer:
    """Owns the streams of calibration tokens; `run` or `replay` for each layer, in order."""

    def __init__(self, source: Source, recipe: Recipe, ids: torch.Tensor | None) -> None:
        """ids: int64 [samples, tokens], or None for a recipe that needs no data. Raises QuantizationFailed for a scheme
        that some product can't have."""
        self._source, self._recipe = source, recipe
        _check(source, recipe)
        schemes = [recipe.of(index, group) for index in range(source.config.layers) for group in GROUPS]
        static = any(each and each.activations and not each.activations.dynamic for each in schemes)
        self._products = any(schemes) and (recipe.rounding == "gptq" or recipe.clip)
        scales = recipe.kv is not None and recipe.kv.kind == "float"
        self._stream = self._smoothing = None
        self._streams: list[Stream] = []
        if ids is None and recipe.needs_data(source.config.layers):
            raise QuantizationFailed("calibration: this recipe needs calibration tokens, and none are given")
        if ids is not None and (static or scales or self._products):
            self._stream = Stream(source, ids)
            self._streams.append(self._stream)
        if ids is not None and recipe.smoothing and any(schemes):
            small = Stream(source, _some(ids, recipe.search_tokens))
            self._smoothing = Smoothing(source, recipe, small)
            self._streams.append(small)

    def run(self, index: int) -> LayerResult:
        source = self._source
        original = source.parts(index)
        parts = dict(original)
        if self._smoothing is not None:
            self._smoothing.run(index, parts)
        passing = None if self._stream is None else self._stream.layer(index, source.raw(index, parts))
        linears: dict[str, QuantizedWeight] = {}
        products: dict[str, Linear] = {}
        reports = []
        for group in GROUPS:
            made, report = self._group(index, group, parts, passing)
            reports.append(report)
            for member, weight in made.items():
                linears[f"layers.{index}.{member}"] = weight
                parts[f"{member}.weight"] = weight.dequantize(torch.float32)
            if self._streams:
                products[group] = product_of(source, index, group, parts, made)
            if passing is not None:
                passing.put(group, products[group])
        self._advance(index, parts, products, passing)
        scales = None if passing is None else self._kv_scales(index, passing)  # a recipe for the cache alone runs now
        floats = {
            f"layers.{index}.{name}": tensor
            for name, tensor in parts.items()
            if tensor is not original[name] and f"layers.{index}.{name.removesuffix('.weight')}" not in linears
        }
        return LayerResult(index, linears, floats, scales, tuple(reports))

    def replay(self, layer: LayerResult) -> None:
        """Move past a layer that was finished before."""
        replay(self._source, self._streams, layer)

    def _advance(self, index: int, parts: Parts, products: Mapping[str, Linear], passing: LayerPass | None) -> None:
        for stream in self._streams:
            if passing is not None and stream is self._stream:
                passing.finish()
            else:
                advance(self._source, stream, index, parts, products)

    def _group(
        self, index: int, group: str, parts: Parts, passing: LayerPass | None
    ) -> tuple[dict[str, QuantizedWeight], GroupReport]:
        scheme = self._recipe.of(index, group)
        if scheme is None:
            return {}, GroupReport(group, "kept")
        name = f"layers.{index}.{group}"
        static = scheme.activations is not None and not scheme.activations.dynamic
        seen = None
        if passing is not None and (self._products or static):
            seen = Hessian(self._source.inputs(group), products=self._products)
            for x in passing.inputs(group):
                seen.add(x)
            if not bool(torch.isfinite(seen.greatest).all()):
                raise QuantizationFailed(
                    f"{name}: its inputs overflow on the calibration text; keep the layers before it in 16 bits"
                )
        return quantized_group(self._source, self._recipe, scheme, index, group, parts, seen)

    def _kv_scales(self, index: int, passing: LayerPass) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Greatest |value| / 448, a layer's or a head's."""
        kv = self._recipe.kv
        if kv is None or kv.kind != "float":
            return None
        ranges = []
        for found in (passing.key_range, passing.value_range):
            each = found if kv.strategy == "head" else found.amax()[None]
            if not bool(torch.isfinite(each).all()) or not bool((each > 0).all()):
                raise QuantizationFailed(
                    f"layers.{index}: keys or values of the calibration text are 0 or infinite in a whole head, so the "
                    "KV cache gets no scale; give other calibration text or choose int8 for the cache"
                )
            ranges.append((each / FP8_MAX).float())
        return ranges[0], ranges[1]


def quantized_group(
    source: Source,
    recipe: Recipe,
    scheme: LinearScheme,
    index: int,
    group: str,
    parts: Parts,
    seen: Hessian | None,
) -> tuple[dict[str, QuantizedWeight], GroupReport]:
    """One product's weights, by the checkpoint's own modules. seen: its inputs. Raises QuantizationFailed."""
    name = f"layers.{index}.{group}"
    check_scheme(scheme.weight, source.inputs(group), name)
    members = source.members(group)
    weights = [parts[f"{member}.weight"] for member in members]
    rounder = _Rounder(recipe, scheme, name, seen.matrix() if seen is not None and seen.products else None)
    # Scales that several outputs share belong to one tensor of the checkpoint; others don't see where it ends.
    made = rounder.round(weights, apart=scheme.weight.strategy in ("tensor", "block"))
    scale = None
    if scheme.activations is not None and not scheme.activations.dynamic:
        if seen is None:
            raise QuantizationFailed(f"{name}: static activations need calibration tokens, and none are given")
        scale = static_scale(seen.greatest, scheme.activations)
    finished = {
        member: _named(weight, f"layers.{index}.{member}", scheme, scale)
        for member, weight in zip(members, made, strict=True)
    }
    return finished, rounder.report(group, weights, made)


class _Rounder:
    """The weights of one product, by GPTQ or to nearest."""

    def __init__(self, recipe: Recipe, scheme: LinearScheme, name: str, hessian: torch.Tensor | None) -> None:
        self._recipe, self._scheme, self._name, self._hessian = recipe, scheme.weight, name, hessian
        self._method = "gptq" if recipe.rounding == "gptq" else "rtn"
        self._damping: float | None = None
        self._note = ""

    def round(self, weights: Sequence[torch.Tensor], apart: bool) -> list[QuantizedWeight]:
        """weights: [out, in] each, of the same inputs."""
        if apart:
            return [self._one(weight) for weight in weights]
        whole = self._one(torch.cat(list(weights)))
        made, first = [], 0
        for weight in weights:
            made.append(whole.rows(slice(first, first + len(weight))))
            first += len(weight)
        return made

    def _one(self, weight: torch.Tensor) -> QuantizedWeight:
        recipe = self._recipe
        if recipe.rounding == "gptq" and self._hessian is not None:
            try:
                made, found = gptq(weight, self._hessian, self._scheme, recipe.damping, recipe.clip, recipe.scale_dtype)
            except NotPositiveDefinite as error:
                if recipe.on_fallback == "fail":
                    raise QuantizationFailed(
                        f"{self._name}: {error}; calibrate with more text, raise the damping, or let on_fallback be "
                        "'record' to round this product to nearest"
                    ) from error
                self._method, self._damping, self._note = "rtn_fallback", error.damping, str(error)
            else:
                self._damping = max(found.damping, self._damping or 0)
                return made
        return quantize_rtn(weight, self._scheme, recipe.clip, self._hessian, recipe.scale_dtype)

    def report(self, group: str, weights: Sequence[torch.Tensor], made: Sequence[QuantizedWeight]) -> GroupReport:
        lost = energy = outputs = 0.0
        missed = nearest = 0.0
        for weight, quantized in zip(weights, made, strict=True):
            error = quantized.dequantize(torch.float32).sub_(weight)
            lost, energy = lost + float(error.square().sum()), energy + float(weight.square().sum())
            if self._hessian is not None:
                rtn = quantize_rtn(weight, self._scheme, scale_dtype=self._recipe.scale_dtype)
                missed += _output(error, self._hessian)
                nearest += _output(rtn.dequantize(torch.float32).sub_(weight), self._hessian)
                outputs += _output(weight, self._hessian)
        seen = self._hessian is not None and outputs > 0
        return GroupReport(
            group, self._method, missed / outputs if seen else None, nearest / outputs if seen else None,
            self._damping, _decibels(energy, lost), self._note,
        )  # fmt: skip


def _output(weight: torch.Tensor, hessian: torch.Tensor) -> float:
    """|W X|² of a weight [out, in] and H = X Xᵀ."""
    return float(((weight @ hessian) * weight).sum())


def _decibels(energy: float, lost: float) -> float | None:
    """None: nothing was lost."""
    return None if lost == 0 or energy == 0 else 10 * float(torch.tensor(energy / lost).log10())


def _named(
    weight: QuantizedWeight, name: str, scheme: LinearScheme, input_scale: torch.Tensor | None
) -> QuantizedWeight:
    """Raises QuantizationFailed for scales that no engine could use: nothing of the kind is handed over."""
    for what, scales in (("scales", weight.scales), ("input scale", input_scale)):
        if scales is not None and not bool(torch.isfinite(scales.float()).all()):
            kind = str(scales.dtype).removeprefix("torch.")
            raise QuantizationFailed(
                f"{name}: its {what} are NaN or infinite in {kind}; choose bfloat16 or float32 for the scales, or keep "
                "this product in 16 bits"
            )
    return replace(weight, name=name, activations=scheme.activations, input_scale=input_scale)


def _check(source: Source, recipe: Recipe) -> None:
    """Before anything is computed."""
    for index in range(source.config.layers):
        for group in GROUPS:
            scheme = recipe.of(index, group)
            if scheme is not None:
                check_scheme(scheme.weight, source.inputs(group), f"layers.{index}.{group}")


def _some(ids: torch.Tensor, tokens: int) -> torch.Tensor:
    """The beginnings of some sequences, spread over all of them, about so many tokens together."""
    samples = min(SEARCH_SAMPLES, len(ids))
    length = min(ids.shape[1], max(1, tokens // samples))
    at = torch.linspace(0, len(ids) - 1, samples).long()
    return ids[at, :length]
