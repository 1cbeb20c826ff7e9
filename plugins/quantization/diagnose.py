"""Where a quantized version went wrong: channels that run hot in the model itself, and layers whose own error, or whose
jump of the accumulated error, stands out against the others'.

The layers' errors come from `engines.native.compare`: two versions on one text, once each with its own inputs
(accumulated) and once with the reference's (a layer's own).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from engines.native.compare import Comparison, LayerDifference
from engines.native.loader.model_files import ModelFiles
from plugins.quantization.model import Source
from plugins.quantization.observe import Hessian, Stream
from plugins.quantization.terms import GROUPS, GroupReport, LayerResult

HOT = 20.0
"""A channel is an outlier whose greatest |x| is so many times the median channel's."""
STANDS_OUT = 3.0
"""A layer is a suspect whose error is so many times the median layer's."""
NAMED = 8

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Outliers:
    """Of the inputs of one product, over the calibration tokens. greatest: |x|; typical: the median channel's greatest.
    channels: the worst of those that are outliers, at most 8, with their greatest |x|; count: of all of them."""

    name: str
    greatest: float
    typical: float
    count: int
    channels: tuple[tuple[int, float], ...]

    @property
    def ratio(self) -> float:
        return self.greatest / self.typical if self.typical > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """layer: its number. keep: pattern for `Recipe.keep` that would leave it in 16 bits."""

    layer: int
    reason: str
    keep: str


@torch.inference_mode()
def outliers(files: ModelFiles, ids: torch.Tensor, progress: Progress) -> list[Outliers]:
    """Of the unchanged model, one entry for each product, in the order in which they run. ids: int64 [samples,
    tokens]."""
    found = []
    with Source(files, ids.shape[1]) as source:
        stream = Stream(source, ids)
        for index in range(source.config.layers):
            progress(index / source.config.layers, f"layer {index + 1} of {source.config.layers}: ranges")
            passing = stream.layer(index, source.raw(index, source.parts(index)))
            for group in GROUPS:
                seen = Hessian(source.inputs(group), products=False)
                for x in passing.inputs(group):
                    seen.add(x)
                found.append(_outliers(f"layers.{index}.{group}", seen.greatest))
            passing.finish()
    return found


def _outliers(name: str, greatest: torch.Tensor) -> Outliers:
    typical = float(greatest.median())
    hot = (greatest > HOT * typical).nonzero().flatten().tolist()
    worst = sorted(hot, key=lambda channel: -float(greatest[channel]))[:NAMED]
    channels = tuple((channel, float(greatest[channel])) for channel in worst)
    return Outliers(name, float(greatest.max()), typical, len(hot), channels)


def suspects(found: Comparison) -> list[Suspect]:
    """Layers that stand out, the worst first: by the error that a layer adds itself, else by the jump of the
    accumulated error."""
    added = [_added(layer, before) for before, layer in zip([None, *found.layers], found.layers, strict=False)]
    usual = median(added)
    named = [(error, layer) for error, layer in zip(added, found.layers, strict=True) if error > STANDS_OUT * usual]
    return [
        Suspect(
            layer.layer,
            f"it adds a relative error of {error:.3g} by itself, {error / usual:.1f} times the median layer's "
            f"({usual:.3g}); the accumulated error behind it is {layer.relative_error:.3g}",
            f"layers.{layer.layer}.*",
        )
        for error, layer in sorted(named, key=lambda each: -each[0])
        if usual > 0
    ]


def _added(layer: LayerDifference, before: LayerDifference | None) -> float:
    if layer.own_error is not None:
        return layer.own_error
    return max(0.0, layer.relative_error - (before.relative_error if before else 0.0))


def fallbacks(layers: Sequence[LayerResult]) -> list[tuple[str, GroupReport]]:
    """Products that aren't what the recipe asked for, by name: counted, never silent."""
    return [
        (f"layers.{layer.index}.{report.group}", report)
        for layer in layers
        for report in layer.reports
        if report.method == "rtn_fallback"
    ]
