"""Layers as the quantized model computes them, in float32: for the calibration of what comes after, and to measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from engines.native.layers.linear import Linear
from engines.native.loader.model_files import ModelFiles
from engines.native.quant.scheme import ActivationScheme
from engines.native.quant.weight import QuantizedWeight
from plugins.quantization.algorithms.grid import FP8_MAX
from plugins.quantization.model import Parts, Source
from plugins.quantization.observe import Stream, linear_of, negative_log_likelihood
from plugins.quantization.terms import GROUPS, LayerResult


def simulated(linear: Linear, scheme: ActivationScheme | None, input_scale: torch.Tensor | None = None) -> Linear:
    """linear with its inputs rounded as `scheme` says; None: as they are."""
    if scheme is None:
        return linear
    return lambda x: linear(rounded(x, scheme, input_scale))


def rounded(x: torch.Tensor, scheme: ActivationScheme, input_scale: torch.Tensor | None = None) -> torch.Tensor:
    """x [t, in] on the grid of the scheme. input_scale: float32 scalar, where it isn't dynamic."""
    if not scheme.dynamic:
        if input_scale is None:
            raise ValueError("a static scheme needs the input's scale")
        return _on_grid(x, scheme.kind, input_scale)
    if scheme.strategy == "group":
        missing = -x.shape[1] % scheme.group
        tiles = torch.nn.functional.pad(x, (0, missing)).view(len(x), -1, scheme.group)
        return _on_grid(tiles, scheme.kind, _scale(tiles.abs().amax(-1, keepdim=True), scheme.kind)).flatten(1)[
            :, : x.shape[1]
        ]
    size = x.abs().amax(-1, keepdim=True) if scheme.strategy == "token" else x.abs().amax()
    return _on_grid(x, scheme.kind, _scale(size, scheme.kind))


def _scale(greatest: torch.Tensor, kind: str) -> torch.Tensor:
    return (greatest / (FP8_MAX if kind == "float" else 127)).clamp(min=1e-12)


def static_scale(greatest: torch.Tensor, scheme: ActivationScheme) -> torch.Tensor:
    """float32 scalar, of the greatest |x| of the calibration."""
    return _scale(greatest.max().float(), scheme.kind)


def _on_grid(x: torch.Tensor, kind: str, scale: torch.Tensor) -> torch.Tensor:
    if kind == "float":
        return (x / scale).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).float().mul_(scale)
    return torch.round(x / scale).clamp_(-128, 127).mul_(scale)


def product_of(source: Source, index: int, group: str, parts: Parts, made: Mapping[str, QuantizedWeight]) -> Linear:
    """One product of the finished layer. parts: its tensors, dequantized. made: its quantized modules, if any."""
    linear = linear_of(source.raw(index, parts), group)
    for weight in made.values():  # of one product they are all alike
        return simulated(linear, weight.activations, weight.input_scale)
    return linear


def advance(source: Source, stream: Stream, index: int, parts: Parts, products: Mapping[str, Linear]) -> None:
    """Move a stream past the layer with these products."""
    passing = stream.layer(index, source.raw(index, parts))
    for group, product in products.items():
        passing.put(group, product)
    passing.finish()


def replay(source: Source, streams: Sequence[Stream], layer: LayerResult) -> None:
    """Move the streams past a finished layer."""
    if not streams:
        return
    parts, prefix = source.parts(layer.index), f"layers.{layer.index}."
    parts |= {name.removeprefix(prefix): tensor.float() for name, tensor in layer.floats.items()}
    made = {name.removeprefix(prefix): weight for name, weight in layer.linears.items()}
    parts |= {f"{name}.weight": weight.dequantize(torch.float32) for name, weight in made.items()}
    products = {}
    for group in GROUPS:
        own = {name: made[name] for name in source.members(group) if name in made}
        products[group] = product_of(source, layer.index, group, parts, own)
    for stream in streams:
        advance(source, stream, layer.index, parts, products)


@torch.inference_mode()
def text_losses(
    files: ModelFiles, layers: Iterable[LayerResult], ids: torch.Tensor, table: QuantizedWeight | None = None
) -> torch.Tensor:
    """Negative log-likelihood of each token but the first of its sequence, nats, float64 [samples, tokens − 1], by the
    finished layers of a model. ids: int64 [samples, tokens]. table: the quantized embedding, if it is."""
    instead = {} if table is None else {"embed.weight": table.dequantize(torch.float32)}
    with Source(files, ids.shape[1], instead) as source:
        stream = Stream(source, ids)
        for layer in layers:
            replay(source, [stream], layer)
        return negative_log_likelihood(stream, ids)
