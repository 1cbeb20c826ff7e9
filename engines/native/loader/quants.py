"""Block formats of GGUF, dequantized with numpy. Layouts: ggml-common.h of llama.cpp.

Each function takes uint8 [blocks, bytes of a block] and gives float32 [blocks, values of a block].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block, float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[blocks, n] → [blocks, 2 n]: all low halves, then all high halves."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """The 32 bits at byte `at`, as values 0 or 16, [blocks, 32]."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") * np.uint8(16)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    """d (half), 16 bytes of nibbles: d × (q − 8)."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    """d, m (half), 16 bytes of nibbles: d × q + m."""
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    """d (half), 32 fifth bits, 16 bytes of nibbles: d × (q − 16)."""
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (values.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    """d, m (half), 32 fifth bits, 16 bytes of nibbles: d × q + m."""
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * values.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    """d (half), 32 signed bytes."""
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def six_bit_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """Scales and minima of a K block's 8 groups, from 12 bytes: the first four of each have 6 bits in bytes 0…7; the
    last four have their low 4 bits in bytes 8…11 and their upper 2 in the top of bytes 0…7."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 0x3F, (third & 0x0F) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 0x3F, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_values(blocks: Bytes, scales: Bytes, values: NDArray[np.uint8]) -> Floats:
    """d × scale × q − dmin × minimum over 8 groups of 32; values [blocks, 8, 32]."""
    group_scales, minima = six_bit_scales(scales)
    scale = (_half(blocks, 0) * group_scales)[:, :, None]
    minimum = (_half(blocks, 2) * minima)[:, :, None]
    return (scale * values.astype(np.float32) - minimum).reshape(len(blocks), 256)


def pairs(packed: Bytes) -> Bytes:
    """128 bytes → [blocks, 8, 32]: each run of 32 bytes holds one group in its low and the next in its high halves."""
    runs = packed.reshape(len(packed), 4, 1, 32)
    return np.concatenate([runs & 0x0F, runs >> 4], axis=2).reshape(len(packed), 8, 32)


def _q4_k(blocks: Bytes) -> Floats:
    """d, dmin (half), 12 bytes of 6-bit scales and minima, 128 bytes of nibbles."""
    return _k_values(blocks, blocks[:, 4:16], pairs(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Floats:
    """As Q4_K, with 32 bytes of fifth bits (bit g of byte i belongs to value i of group g) before the nibbles."""
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & np.uint8(1)
    return _k_values(blocks, blocks[:, 4:16], pairs(blocks[:, 48:176]) | (high * np.uint8(16)))


def q6_values(blocks: Bytes) -> Bytes:
    """Values 0 … 63 of Q6_K blocks in their order, [blocks, 2, 4, 32]."""
    low = blocks[:, 0:128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 0x0F, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 0x03
    return (low | (high << 4)).astype(np.uint8, copy=False)


def _q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low nibbles, 64 of upper 2 bits, 16 signed scales, d (half): d × scale × (q − 32), groups of 16."""
    values = q6_values(blocks).astype(np.float32) - 32
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32) * _half(blocks, 208)
    return (values.reshape(-1, 16, 16) * scales[:, :, None]).reshape(-1, 256)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """`id`: GGML's number of the type; `values` in a block of `bytes` bytes."""

    name: str
    id: int
    values: int
    bytes: int
    dequantize: Callable[[Bytes], Floats]


FORMATS = {
    form.id: form
    for form in (
        BlockFormat("F32", 0, 1, 4, _f32),
        BlockFormat("F16", 1, 1, 2, _f16),
        BlockFormat("Q4_0", 2, 32, 18, _q4_0),
        BlockFormat("Q4_1", 3, 32, 20, _q4_1),
        BlockFormat("Q5_0", 6, 32, 22, _q5_0),
        BlockFormat("Q5_1", 7, 32, 24, _q5_1),
        BlockFormat("Q8_0", 8, 32, 34, _q8_0),
        BlockFormat("Q4_K", 12, 256, 144, _q4_k),
        BlockFormat("Q5_K", 13, 256, 176, _q5_k),
        BlockFormat("Q6_K", 14, 256, 210, _q6_k),
        BlockFormat("BF16", 30, 1, 2, _bf16),
    )
}
BY_NAME = {form.name: form for form in FORMATS.values()}


def dequantize(data: memoryview, kind: str, shape: tuple[int, ...]) -> Floats:
    """Bytes of a tensor of type `kind` → float32 of `shape`."""
    form = BY_NAME[kind]
    blocks = np.frombuffer(data, np.uint8).reshape(-1, form.bytes)
    return form.dequantize(blocks).reshape(shape)
