"""Whether quantized weights can be split over the GPUs of one instance: arithmetic of plan time, before a byte is made.

Tensor parallelism cuts o and down along their inputs and q, k, v, gate, up along their outputs. A scale that serves a
group of inputs, or a block of both, must lie on one rank with all that it scales. vLLM refuses such a model when it is
served (its issue 13640: 14,784 inputs per rank, groups of 128); here it is said before the hours of a quantization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.api import ModelShape

SMALLEST_GROUP = 32
"""Below that the scales take more than they give."""
TILE = 16
"""Inputs and outputs that tensor cores take at once."""


def shard_refusals(shape: ModelShape, ranks: int, *, group: int = 0, block: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each layer that can't be split over `ranks` GPUs, with what would do; [] where all can.

    group: inputs that share a scale, 0 for one scale per output or tensor. block: (outputs, inputs) that share one.
    """
    if ranks <= 1:
        return []
    out_span, in_span = block or (1, group or 1)
    found = [*_heads(shape, ranks)]
    for layer, size in _split_inputs(shape):
        found += _refusal(layer, "inputs", size, ranks, in_span, block)
    for layer, size in _split_outputs(shape):
        found += _refusal(layer, "outputs", size, ranks, out_span, block)
    return found


def _heads(shape: ModelShape, ranks: int) -> Iterator[str]:
    if shape.heads % ranks:
        fitting = _fitting(shape.heads, 1)
        yield f"{shape.heads} attention heads don't split over {ranks} GPUs; use {_either(fitting)}."


def _split_inputs(shape: ModelShape) -> Iterator[tuple[str, int]]:
    yield "o_proj", shape.heads * shape.head_dim
    yield "down_proj", shape.ffn


def _split_outputs(shape: ModelShape) -> Iterator[tuple[str, int]]:
    yield "q_proj", shape.heads * shape.head_dim
    yield "gate_proj and up_proj", shape.ffn


def _refusal(layer: str, what: str, size: int, ranks: int, span: int, block: tuple[int, int] | None) -> Iterator[str]:
    if size % ranks == 0 and size // ranks % max(span, TILE) == 0:
        return
    share = f"{size // ranks:,}" if size % ranks == 0 else f"{size / ranks:,.1f}"
    side = "in" if what == "inputs" else "out"
    verb = "have" if " and " in layer else "has"
    begun = f"{layer} {verb} {size:,} {what}: split over {ranks} GPUs, {side}/TP = {share}, which "
    if size % ranks:
        begun += "is no whole number"
    elif span > 1:
        begun += f"{'blocks' if block else 'groups'} of {span} don't divide"
    else:
        begun += f"is no multiple of {TILE}, as tensor cores need it"
    yield f"{begun}; {_proposal(size, ranks, span, block)}."


def _proposal(size: int, ranks: int, span: int, block: tuple[int, int] | None) -> str:
    ways = []
    smaller = [group for group in (128, 64, SMALLEST_GROUP) if group < span and size % (ranks * group) == 0]
    if smaller and block is None:
        ways.append(f"quantize in groups of {smaller[0]}")
    elif span > 1:
        ways.append("take a scheme with one scale per channel")
    fitting = _fitting(size, max(span, TILE))
    if fitting:
        ways.append(f"serve it on {_either(fitting)}")
    unit = ranks * max(span, TILE)
    padded = -(-size // unit) * unit
    ways.append(f"pad the layer to {padded:,}")
    return ", ".join(ways[:-1]) + f", or {ways[-1]}" if len(ways) > 1 else ways[0]


def _fitting(size: int, span: int) -> list[int]:
    """Numbers of GPUs that divide `size` into whole spans."""
    return [ranks for ranks in (1, 2, 4, 8, 16) if size % ranks == 0 and size // ranks % span == 0]


def _either(ranks: list[int]) -> str:
    names = [str(each) for each in ranks]
    text = names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" or {names[-1]}"
    return f"{text} GPU" + ("s" if names[-1] != "1" else "")
