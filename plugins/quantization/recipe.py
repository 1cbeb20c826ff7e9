"""The built-in back end's entry: a model's files and a recipe in, finished layers out, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engines.native.layers.embedding import Int8Table
from engines.native.loader.model_files import ModelFiles
from engines.native.quant.scheme import WeightScheme
from engines.native.quant.weight import QuantizedWeight
from plugins.quantization.errors import QuantizationFailed
from plugins.quantization.layer import LayerQuantizer
from plugins.quantization.model import Source
from plugins.quantization.terms import GROUPS, GroupReport, LayerResult, LayerSink, Recipe

__all__ = ["GROUPS", "GroupReport", "LayerResult", "LayerSink", "Progress", "QuantizationFailed", "Recipe", "quantize"]

Progress = Callable[[float, str], None]
"""Called with the share done, 0…1, and what is being done. What it raises ends the job (a cancel)."""


@torch.inference_mode()
def quantize(
    files: ModelFiles,
    recipe: Recipe,
    ids: torch.Tensor | None,
    out: LayerSink,
    progress: Progress,
    resume_from: int = 0,
) -> None:
    """files: in floating point, or a GGUF file. ids: int64 [samples, tokens], calibration sequences of one length; None
    for a recipe that needs none. resume_from: layers that `out` has from an earlier attempt; the calibration tokens run
    through them again.

    Memory: one layer in float32, the tokens' residual stream (tokens × hidden × 4 bytes, about three times) and up to
    1 GiB of the MLP's inputs. Raises QuantizationFailed.
    """
    progress(0.0, "looking for NaN and infinite weights")
    with Source(files, 1 if ids is None else ids.shape[1]) as source:
        source.check_finite()
        quantizer = LayerQuantizer(source, recipe, ids)
        layers = source.config.layers
        for index in range(layers):
            if index < resume_from:
                progress(index / layers, f"layer {index + 1} of {layers} is there: the text runs through it")
                quantizer.replay(out.finished(index))
            else:
                progress(index / layers, f"layer {index + 1} of {layers}")
                out.take(quantizer.run(index))
        if recipe.embedding:
            progress(1.0, "the embedding table")
            out.embedding(_table(source))
    progress(1.0, "all layers are finished")


def _table(source: Source) -> QuantizedWeight:
    table = Int8Table.of(source.read("embed.weight"))
    return QuantizedWeight(
        WeightScheme("int", 8, "channel"), table.values, table.scales[:, None].contiguous(), name="embed"
    )
