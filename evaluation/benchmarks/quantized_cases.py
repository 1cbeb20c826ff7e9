"""Random weights in the schemes that `quantized_gpu` runs, rounded to nearest where they lie."""

from __future__ import annotations

from dataclasses import replace

import torch

from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles

FP8 = WeightScheme("float", 8, "channel")
INT8 = WeightScheme("int", 8, "channel")
INT4 = WeightScheme("int", 4, "group", 128)
SCHEMES = {
    "fp8": LinearScheme(FP8, ActivationScheme("float")),
    "fp8-static": LinearScheme(FP8, ActivationScheme("float", dynamic=False, strategy="tensor")),
    "fp8-block": LinearScheme(
        replace(FP8, strategy="block", block=(128, 128)), ActivationScheme("float", strategy="group", group=128)
    ),
    "int8": LinearScheme(INT8, ActivationScheme("int")),
    "w8a16": LinearScheme(INT8),
    "w4a16": LinearScheme(INT4),
    "w4a16-asym": LinearScheme(replace(INT4, symmetric=False)),
    "w4a16-g32": LinearScheme(replace(INT4, group=32)),
    "w4a16-g64": LinearScheme(replace(INT4, group=64)),
    "w4a16-channel": LinearScheme(replace(INT4, strategy="channel", group=0)),
    "w4a16-order": LinearScheme(replace(INT4, actorder="group")),
}
INPUT_SCALE = 0.02
"""Of fp8-static: a given scale that normed values of 9 fill."""


def quantized(weight: torch.Tensor, scheme: LinearScheme) -> QuantizedWeight:
    """weight [out, in], any float dtype, rounded to nearest, on its device; scales in bfloat16 (of blocks float32)."""
    kind = scheme.weight
    outputs, inputs = weight.shape
    order = None
    if kind.actorder == "group":
        generator = torch.Generator().manual_seed(inputs)
        order = (torch.randperm(inputs, generator=generator) // kind.group).to(torch.int32).to(weight.device)
        weight = weight[:, torch.argsort(order, stable=True)]
    if kind.block is not None:
        tall, wide = -(-outputs // 128), -(-inputs // 128)
        padded = torch.nn.functional.pad(weight.float(), (0, wide * 128 - inputs, 0, tall * 128 - outputs))
        groups = padded.view(tall, 128, wide, 128)
        scales = groups.abs().amax((1, 3)) / 448
        values = (groups / scales[:, None, :, None]).view(tall * 128, -1)[:outputs, :inputs].to(torch.float8_e4m3fn)
        return QuantizedWeight(kind, values.contiguous(), scales, activations=scheme.activations)
    groups = weight.float().view(outputs, -1, kind.group or inputs)
    zeros = None
    if kind.bits == 8:
        scales = (groups.abs().amax(-1) / (448 if kind.kind == "float" else 127)).bfloat16()
        scaled = groups.div_(scales.float()[..., None])
        values = scaled.to(torch.float8_e4m3fn) if kind.kind == "float" else scaled.round_().clamp_(-127, 127).char()
    elif kind.symmetric:
        scales = (groups.abs().amax(-1) / 7.5).bfloat16()
        values = groups.div_(scales.float()[..., None]).round_().add_(8).clamp_(0, 15)
    else:
        low, high = groups.aminmax(dim=-1)
        scales = ((high - low) / 15).bfloat16()
        zeros = (-low / scales.float()).round_().clamp_(0, 15)
        values = groups.div_(scales.float()[..., None]).round_().add_(zeros[..., None]).clamp_(0, 15)
        zeros = zeros.byte()
    values = values.view(outputs, inputs)
    if order is not None:
        back = torch.empty_like(values)
        back[:, torch.argsort(order, stable=True)] = values
        values = back
    given = None
    if scheme.activations is not None and not scheme.activations.dynamic:
        given = torch.tensor(INPUT_SCALE, device=weight.device)
    return QuantizedWeight(
        kind, pack_nibbles(values) if kind.bits == 4 else values, scales, zeros, order, given,
        activations=scheme.activations,
    )  # fmt: skip
