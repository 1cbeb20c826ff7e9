"""A quantized matrix from mapped files → QuantizedWeight: of safetensors by its layout, of GGUF from its blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.loader.quants import BY_NAME, Bytes, pairs, q6_values, six_bit_scales
from engines.native.loader.tensors import TensorInfo
from engines.native.quant import packing
from engines.native.quant.stored import KEPT_BLOCKS, Stored
from engines.native.quant.weight import QuantizedWeight, pack_nibbles

BytesOf = Callable[[TensorInfo], memoryview]
_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I8": torch.int8,
    "I32": torch.int32,
    "I64": torch.int64,
}


def tensor_of(info: TensorInfo, data: memoryview) -> torch.Tensor:
    """A view of the file's bytes as the tensor that they are."""
    return torch.frombuffer(data, dtype=_TYPES[info.type]).view(info.shape)


def read(stored: Stored, bytes_of: BytesOf) -> QuantizedWeight:
    """A copy in memory. Raises BadModel for content that no writer of the layout makes, naming the tensor."""
    if stored.layout == "gguf":
        return from_blocks(stored.parts["weight"], bytes_of(stored.parts["weight"]))
    parts = {kind: tensor_of(info, bytes_of(info)).clone() for kind, info in stored.parts.items()}
    return packing.unpacked(stored.layout, parts, stored.scheme, stored.shape, stored.module)


def from_blocks(info: TensorInfo, data: memoryview) -> QuantizedWeight:
    """GGUF's blocks of a matrix [out, in], their values in the order of the inputs. dequantize() gives what
    loader.quants gives, bit for bit: the same numbers are multiplied in the same order."""
    rows, columns = info.shape
    blocks = np.frombuffer(data, np.uint8).reshape(-1, BY_NAME[info.type].bytes)
    values, scales, minima = _BLOCKS[info.type](blocks)
    codes = torch.from_numpy(np.ascontiguousarray(values).reshape(rows, columns))
    scheme = KEPT_BLOCKS[info.type]
    return QuantizedWeight(
        scheme,
        pack_nibbles(codes) if scheme.bits == 4 else codes,
        torch.from_numpy(np.ascontiguousarray(scales).reshape(rows, -1)),
        offsets=None if minima is None else torch.from_numpy(np.ascontiguousarray(minima).reshape(rows, -1)),
        name=info.name.removesuffix(".weight"),
    )


Array = NDArray[Any]
Split = tuple[Array, Array, Array | None]
"""Values in order, scales and minima of a number of blocks."""


def _halves(blocks: Bytes, at: int) -> Array:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)


def _nibbles(packed: Bytes) -> Bytes:
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1)


def _q8_0(blocks: Bytes) -> Split:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8), _halves(blocks, 0), None


def _q4_0(blocks: Bytes) -> Split:
    return _nibbles(blocks[:, 2:]), _halves(blocks, 0), None


def _q4_1(blocks: Bytes) -> Split:
    return _nibbles(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2)


def _q4_k(blocks: Bytes) -> Split:
    scales, minima = six_bit_scales(blocks[:, 4:16])
    whole, least = _halves(blocks, 0).astype(np.float32), _halves(blocks, 2).astype(np.float32)
    return pairs(blocks[:, 16:144]), whole * scales, -(least * minima)


def _q6_k(blocks: Bytes) -> Split:
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return q6_values(blocks).astype(np.int8) - np.int8(32), scales * _halves(blocks, 208).astype(np.float32), None


_BLOCKS: dict[str, Callable[[Bytes], Split]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
