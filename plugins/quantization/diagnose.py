"""Where a quantized version went wrong: channels that run hot in the model itself, and layers whose own error, or whose
jump of the accumulated error, stands out against the others'.

    python -m plugins.quantization.diagnose REFERENCE VERSION [--text FILE]

REFERENCE, VERSION: a GGUF file or a folder with safetensors; the version is compared as it is served.
The layers' errors come from `engines.native.compare`: two versions on one text, once each with its own inputs
(accumulated) and once with the reference's (a layer's own).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from engines.native import compare
from engines.native.compare import Comparison, LayerDifference
from engines.native.config import ConfigError
from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.models.calibration import TEXT
from engines.protocol import ChildError
from plugins.quantization.errors import QuantizationFailed
from plugins.quantization.model import Source
from plugins.quantization.observe import Hessian, Stream
from plugins.quantization.terms import GROUPS

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
    """layer: its number. keep: name for a recipe's `keep`, which leaves it in 16 bits."""

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
            f"layers.{layer.layer}",
        )
        for error, layer in sorted(named, key=lambda each: -each[0])
        if usual > 0
    ]


def _added(layer: LayerDifference, before: LayerDifference | None) -> float:
    if layer.own_error is not None:
        return layer.own_error
    return max(0.0, layer.relative_error - (before.relative_error if before else 0.0))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("version", type=Path)
    parser.add_argument("--text", type=Path, help="what both read; its first tokens count")
    options = parser.parse_args(arguments)
    reference, version = compare.of_path(options.reference, "float32"), compare.of_path(options.version, "auto")
    try:
        text = options.text.read_text(encoding="utf-8") if options.text else TEXT
        found = compare.run(reference, version, device="cpu", text=text, progress=lambda share, doing: None)
        files = open_model(reference.format, reference.paths)
        tokenizer, _ = load_tokenizer(files)
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False).ids[: found.tokens]])
        hot = [each for each in outliers(files, ids, lambda share, doing: None) if each.count]
    except (BadModel, ChildError, ConfigError, QuantizationFailed, OSError, ValueError) as error:
        print(f"diagnose: {error}", file=sys.stderr)
        return 2
    print("\n".join([compare.table(found), "", *_said(suspects(found), hot)]))
    return 0


def _said(named: Sequence[Suspect], hot: Sequence[Outliers]) -> list[str]:
    lines = [f"layer {each.layer}: {each.reason}; option keep: {each.keep}" for each in named]
    lines = lines or ["no layer stands out by its own error"]
    for each in sorted(hot, key=lambda one: -one.ratio)[:NAMED]:
        channels = ", ".join(f"{channel} ({size:.3g})" for channel, size in each.channels)
        lines.append(
            f"{each.name}: {each.count} inputs reach over {HOT:.0f} times the median's {each.typical:.3g}: {channels}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
