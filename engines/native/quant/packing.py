"""The tensors of each layout → QuantizedWeight, and for compressed-tensors (which we write) back. Bits are moved, never
rounded. Layouts: engines/native/quant/stored.py.

On a little-endian machine the bytes of a word of pack-quantized and of AutoGPTQ follow each other as their values do,
the lower nibble first: with the words along the inputs they are already what QuantizedWeight holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from engines.native.loader.errors import BadModel
from engines.native.quant.scheme import LinearScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles, unpack_nibbles

Tensors = Mapping[str, torch.Tensor]
_AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]
"""Output i of eight is nibble _AWQ_ORDER[i] of its word (the nibbles hold outputs 0, 2, 4, 6, 1, 3, 5, 7)."""


def unpacked(layout: str, parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str) -> QuantizedWeight:
    """parts: kind → tensor, as in the file. name: the module's, for messages. Raises BadModel for what no writer of the
    layout makes."""
    weight = UNPACK[layout](parts, scheme, shape, name)
    return replace(weight, activations=scheme.activations, input_scale=_scalar(parts.get("input_scale")), name=name)


def _scalar(scale: torch.Tensor | None) -> torch.Tensor | None:
    return None if scale is None else scale.float().reshape(())


def _bytes(words: torch.Tensor) -> torch.Tensor:
    """int32 [a, b] → uint8 [a, 4 b], the lowest byte first."""
    return words.reshape(-1).view(torch.uint8).view(len(words), -1)  # a side of 1 may keep odd strides


def _unsigned(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """int32 [a, ⌈count × bits / 32⌉] → uint8 [a, count], packed along the last side, lowest bits first."""
    packed = _bytes(words)
    return packed[:, :count] if bits == 8 else unpack_nibbles(packed, count)


def _signed(values: torch.Tensor) -> torch.Tensor:
    """uint8 where 128 is 0 → int8."""
    return (values ^ 128).view(torch.int8)


def _order(parts: Tensors, kind: str, scheme: LinearScheme, groups: int, name: str) -> torch.Tensor | None:
    """int32 [in], the group of each input; None where groups lie in order."""
    order = parts.get(kind)
    if order is None or bool((order == -1).all()):  # -1: a writer that made the tensor and didn't use it
        return None
    if int(order.min()) < 0 or int(order.max()) >= groups:
        raise BadModel(
            "wrong_shape",
            f"tensor {name}.{kind} names groups {int(order.min())} … {int(order.max())}, and there are {groups}",
        )
    size = scheme.weight.group or len(order)
    natural = torch.arange(len(order), dtype=order.dtype) // size
    return None if torch.equal(order, natural) else order.to(torch.int32)


def _ordered(weight: QuantizedWeight, order: torch.Tensor | None) -> QuantizedWeight:
    """The scheme says what the tensors turned out to be."""
    kept = weight.scheme.actorder if weight.scheme.actorder != "group" else ""
    return replace(weight, scheme=replace(weight.scheme, actorder=kept if order is None else "group"), groups_of=order)


def _odd(scheme: LinearScheme, columns: int) -> int | None:
    return columns if scheme.weight.bits == 4 and columns % 2 else None


# compressed-tensors


def _scales(scales: torch.Tensor) -> torch.Tensor:
    return scales if scales.dim() == 2 else scales.reshape(-1, 1)


def _from_packed(parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str) -> QuantizedWeight:
    rows, columns = shape
    said = tuple(parts["weight_shape"].tolist())
    if said != shape:
        raise BadModel(
            "wrong_shape", f"tensor {name}.weight_shape says {list(said)}; the configuration makes it {list(shape)}"
        )
    bits = scheme.weight.bits
    packed = _bytes(parts["weight_packed"])
    values = packed[:, : -(-columns // 2)] if bits == 4 else _signed(packed[:, :columns])
    scales = _scales(parts["weight_scale"])
    zeros = parts.get("weight_zero_point")
    if zeros is not None and zeros.dtype == torch.int32:  # along the outputs
        zeros = _unsigned(zeros.t(), bits, rows).t().contiguous()
    elif zeros is not None:
        zeros = _unsigned_zeros(zeros, bits)
    order = _order(parts, "weight_g_idx", scheme, scales.shape[1], name)
    weight = QuantizedWeight(scheme.weight, values.contiguous(), scales, zeros, inputs=_odd(scheme, columns))
    return _ordered(weight, order)


def _unsigned_zeros(zeros: torch.Tensor, bits: int) -> torch.Tensor:
    """int8, as the library counts them, → uint8 from 0."""
    return (_scales(zeros).to(torch.int16) + (1 << (bits - 1))).to(torch.uint8)


def _from_plain(parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str) -> QuantizedWeight:
    values, bits = parts["weight"], scheme.weight.bits
    if bits == 4:  # in bytes of their own
        if int(values.min()) < -8 or int(values.max()) > 7:
            raise BadModel(
                "wrong_shape", f"tensor {name}.weight has values outside -8 … 7, and is said to be of 4 bits"
            )
        values = pack_nibbles(values + 8)
    zeros = parts.get("weight_zero_point")
    zeros = None if zeros is None else _unsigned_zeros(zeros, bits)
    scales = _scales(parts["weight_scale"])
    weight = QuantizedWeight(scheme.weight, values, scales, zeros, inputs=_odd(scheme, shape[1]))
    return _ordered(weight, _order(parts, "weight_g_idx", scheme, scales.shape[1], name))


# AutoGPTQ and AutoAWQ


def _from_gptq(parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str) -> QuantizedWeight:
    return _gptq(parts, scheme, shape, name, 1)


def _from_gptq_v2(parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str) -> QuantizedWeight:
    return _gptq(parts, scheme, shape, name, 0)


def _gptq(parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str, less: int) -> QuantizedWeight:
    """less: what the file's zeros are below the true ones (v1: by 1; the greatest stands for 0, as AutoGPTQ 0.7 reads
    it)."""
    rows, bits = shape[0], scheme.weight.bits
    values = _bytes(parts["qweight"].t())
    values = values if bits == 4 else _signed(values)
    zeros = _unsigned(parts["qzeros"], bits, rows).t().contiguous()
    zeros = (zeros + less) & ((1 << bits) - 1)
    scales = parts["scales"].t().contiguous()
    middle = bool((zeros == (1 << (bits - 1))).all())
    made = replace(scheme.weight, symmetric=middle and scheme.weight.symmetric)
    weight = QuantizedWeight(made, values, scales, None if made.symmetric else zeros)
    return _ordered(weight, _order(parts, "g_idx", scheme, scales.shape[1], name))


def _from_awq(parts: Tensors, scheme: LinearScheme, shape: tuple[int, int], name: str) -> QuantizedWeight:
    values = _awq_outputs(parts["qweight"], shape[0])  # [in, out]
    zeros = _awq_outputs(parts["qzeros"], shape[0])
    packed = pack_nibbles(values.t())
    scales, zeros = parts["scales"].t().contiguous(), zeros.t().contiguous()
    return QuantizedWeight(scheme.weight, packed, scales, zeros, inputs=_odd(scheme, shape[1]))


def _awq_outputs(words: torch.Tensor, outputs: int) -> torch.Tensor:
    """int32 [n, out/8] → uint8 [n, out] in the order of the outputs."""
    nibbles = unpack_nibbles(_bytes(words), outputs)
    return nibbles.view(len(words), -1, 8)[:, :, _AWQ_ORDER].flatten(1)


UNPACK: dict[str, Callable[[Tensors, LinearScheme, tuple[int, int], str], QuantizedWeight]] = {
    "pack-quantized": _from_packed,
    "int-quantized": _from_plain,
    "float-quantized": _from_plain,
    "naive-quantized": _from_plain,
    "fp8": _from_plain,
    "gptq": _from_gptq,
    "gptq_v2": _from_gptq_v2,
    "awq": _from_awq,
}


# Writing


def layout_for(scheme: LinearScheme) -> str:
    """The layout of compressed-tensors that a module of the scheme is written in: what vLLM expects of it."""
    if scheme.weight.kind == "float":
        return "float-quantized" if scheme.activations is not None else "naive-quantized"
    if scheme.weight.bits == 4 or scheme.activations is None:
        return "pack-quantized"
    return "int-quantized"


def packed(weight: QuantizedWeight, layout: str) -> dict[str, torch.Tensor]:
    """kind → tensor, of a module in `layout` ("pack-quantized", "int-", "float-" or "naive-quantized").

    Raises ValueError for GGUF's minima, which the layouts have no place for.
    """
    if weight.offsets is not None:
        raise ValueError(f"{weight.name}: minima of GGUF's blocks have no place in {layout}")
    scale = weight.scales.reshape(1) if weight.scheme.strategy == "tensor" else weight.scales.contiguous()
    parts = {"weight_scale": scale}
    if layout == "pack-quantized":
        parts |= _to_words(weight)
    else:
        parts |= _to_plain(weight)
    if weight.groups_of is not None:
        parts["weight_g_idx"] = weight.groups_of
    if weight.input_scale is not None:
        parts["input_scale"] = weight.input_scale.reshape(1)
    return parts


def _words(values: torch.Tensor) -> torch.Tensor:
    """uint8 [a, n] → int32 [a, ⌈n / 4⌉]."""
    values = torch.nn.functional.pad(values, (0, -values.shape[1] % 4))
    # Flat first: a matrix of one row may have any stride, and torch looks at it.
    return values.contiguous().flatten().view(torch.int32).view(len(values), -1)


def _to_words(weight: QuantizedWeight) -> dict[str, torch.Tensor]:
    bits = weight.scheme.bits
    parts = {
        "weight_packed": _words(weight.values if bits == 4 else weight.values.view(torch.uint8) ^ 128),
        "weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
    }
    if weight.zeros is not None and weight.scheme.strategy in ("group", "channel"):
        along = weight.zeros.t().contiguous()  # [groups, out]
        parts["weight_zero_point"] = _words(pack_nibbles(along) if bits == 4 else along).t().contiguous()
    elif weight.zeros is not None:
        parts["weight_zero_point"] = _signed_zeros(weight)
    return parts


def _to_plain(weight: QuantizedWeight) -> dict[str, torch.Tensor]:
    values = weight.values
    if weight.scheme.bits == 4:
        values = unpack_nibbles(values, weight.shape[1]).to(torch.int8) - 8
    parts = {"weight": values.contiguous()}
    if weight.zeros is not None:
        parts["weight_zero_point"] = _signed_zeros(weight)
    return parts


def _signed_zeros(weight: QuantizedWeight) -> torch.Tensor:
    assert weight.zeros is not None
    zeros = (weight.zeros.to(torch.int16) - (1 << (weight.scheme.bits - 1))).to(torch.int8)
    return zeros.reshape(1) if weight.scheme.strategy == "tensor" else zeros
