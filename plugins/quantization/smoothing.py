"""A layer before it is rounded: channels whose inputs are large get factors, by SmoothQuant or AWQ, and every factor is
folded into what makes the channel."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engines.native.quant.scheme import WeightScheme
from plugins.quantization.algorithms.awq import search_factors, weight_means, widened
from plugins.quantization.algorithms.smoothquant import smooth_factors
from plugins.quantization.fold import Folds
from plugins.quantization.model import Parts, Source
from plugins.quantization.observe import Hessian, LayerPass, Stream, linear_of
from plugins.quantization.terms import GROUPS, Recipe


class Smoothing:
    """stream: some calibration tokens, behind the layers that are quantized already; its owner moves it on."""

    def __init__(self, source: Source, recipe: Recipe, stream: Stream) -> None:
        self._source, self._recipe, self._stream = source, recipe, stream
        self._folds = Folds(source)

    def run(self, index: int, parts: Parts) -> None:
        """Changes `parts` of the layer. Raises QuantizationFailed where AWQ finds no factors."""
        passing = self._stream.layer(index, self._source.raw(index, parts))
        seen = {}
        for group in GROUPS:
            products = self._recipe.smoothing == "awq" and group in ("o", "down")
            seen[group] = Hessian(self._source.inputs(group), products)
            for x in passing.inputs(group):
                seen[group].add(x)
        for group in GROUPS:
            readers = self._folds.readers(group)
            schemes = [scheme.weight for reader in readers if (scheme := self._recipe.of(index, reader))]
            if not schemes or group != readers[0]:
                continue  # kept in 16 bits, or done with the first that reads the same
            weights = torch.cat(
                [parts[f"{member}.weight"] for reader in readers for member in self._source.members(reader)]
            )
            if self._recipe.smoothing == "smoothquant":
                factors = smooth_factors(
                    self._folds.shared(group, seen[group].greatest, greatest=True),
                    self._folds.shared(group, weights.abs().amax(0), greatest=True),
                    self._recipe.alpha,
                )
            else:
                loss = self._loss(index, group, parts, passing, seen[group], schemes[0], weights)
                factors, _ = search_factors(
                    self._folds.shared(group, seen[group].mean),
                    self._folds.shared(group, weight_means(weights, schemes[0])),
                    loss,
                    f"layers.{index}.{group}",
                )
            self._folds.apply(parts, group, factors)

    def _loss(
        self,
        index: int,
        group: str,
        parts: Parts,
        passing: LayerPass,
        seen: Hessian,
        scheme: WeightScheme,
        weights: torch.Tensor,
    ) -> Callable[[torch.Tensor], float]:
        """Of factors: the squared error of what the attention or the MLP gives; of o and down, which end them, of
        their own outputs."""
        dtype, folds, source = self._recipe.scale_dtype, self._folds, self._source
        if group in ("o", "down"):
            hessian = seen.matrix()

            def of_outputs(factors: torch.Tensor) -> float:
                error = widened(weights, folds.spread(group, factors), scheme, dtype).sub_(weights)
                return float(((error @ hessian) * error).sum())

            return of_outputs
        readers = folds.readers(group)
        before = dict(parts)
        raw = source.raw(index, before)
        wanted = passing.tried(**{reader: linear_of(raw, reader) for reader in readers})

        def of_block(factors: torch.Tensor) -> float:
            changed = dict(before)
            for reader in readers:
                for member in source.members(reader):
                    name = f"{member}.weight"
                    changed[name] = widened(before[name], factors, scheme, dtype)
            raw = source.raw(index, changed)
            tried = passing.tried(**{reader: linear_of(raw, reader) for reader in readers})
            return float(tried.sub_(wanted).square().sum())

        return of_block
