"""Activations in 8 bits for `kernels.scaled`, made where they are read anyway: from a tensor, behind a norm, behind
silu × up.

A row's values go out in the order of `kernels.packed.order`, padded with zeros to whole blocks of 128: what lies 64
inputs apart is worked on by one thread and leaves as neighbouring bytes. Scales are greatest value / 127 or 448, of a
token, or of a block of 128 inputs of a token, or one given scale. float32 throughout, one rounding, to even.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engines.native.kernels.dependent import begin, dependent, wait
from engines.native.kernels.fused import splits_of, warps_for
from engines.native.kernels.packed import BLOCK

TOKEN, GROUPS, GIVEN = "token", "groups", "given"
"""What shares a scale: a token's values, 128 of them, all of all tokens by a scale from the checkpoint."""


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """values: [t, padded], int8 or float8_e4m3fn. scales: float32 [t], of groups [t, padded / 128], given [1].
    dtype: of the products."""

    values: torch.Tensor
    scales: torch.Tensor
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.values)


@triton.jit
def _emit(
    low, high, values, scales, given, token, block,
    SIZE: tl.constexpr, FP8: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """low, high: float32 [blocks, 64], 0 beyond SIZE. values and scales of one token."""
    TOP: tl.constexpr = 448.0 if FP8 else 127.0
    BLOCKS: tl.constexpr = (SIZE + 127) // 128
    most = tl.max(tl.maximum(tl.abs(low), tl.abs(high)), 1)
    if KIND == "groups":
        scale = tl.maximum(most / TOP, 1e-12)
        tl.store(scales + token * BLOCKS + block, scale, mask=block < BLOCKS)
        scale = scale[:, None]
    elif KIND == "token":
        scale = tl.maximum(tl.max(most, 0) / TOP, 1e-12)
        tl.store(scales + token, scale)
    else:
        scale = tl.load(given)
    value = tl.reshape(tl.join(low / scale, high / scale), [low.shape[0], 128])
    value = tl.minimum(tl.maximum(value, -TOP), TOP)
    if not FP8:
        value = (value + 12582912.0) - 12582912.0  # 1.5 × 2²³: only whole numbers are left
    to = values + token * BLOCKS * 128 + block[:, None] * 128 + tl.arange(0, 128)[None, :]
    tl.store(to, value.to(values.dtype.element_ty), mask=(block < BLOCKS)[:, None])


@triton.jit
def quantize_kernel(
    x, values, scales, given,
    SIZE: tl.constexpr, ROWS: tl.constexpr, FP8: tl.constexpr, KIND: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: tokens. ROWS: blocks of 128, a power of two."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    token = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, ROWS)
    i = block[:, None] * 128 + tl.arange(0, 64)[None, :]
    low = tl.load(x + token * SIZE + i, mask=i < SIZE, other=0.0).to(tl.float32)
    high = tl.load(x + token * SIZE + i + 64, mask=i + 64 < SIZE, other=0.0).to(tl.float32)
    _emit(low, high, values, scales, given, token, block, SIZE, FP8, KIND)


@triton.jit
def _added(x, residual, place, stride, mask, SPLITS: tl.constexpr):
    """x, or the sum of its summands, plus residual, written back: float32 of what is written."""
    value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    for split in tl.static_range(1, SPLITS):
        value += tl.load(x + split * stride + place, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(residual + place, mask=mask, other=0.0).to(tl.float32)
    rounded = value.to(residual.dtype.element_ty)
    tl.store(residual + place, rounded, mask=mask)
    return rounded.to(tl.float32)


@triton.jit
def add_rms_norm_quantize_kernel(
    x, residual, weight, values, scales, given, stride, eps,
    SIZE: tl.constexpr, ROWS: tl.constexpr, SPLITS: tl.constexpr, FP8: tl.constexpr, KIND: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: tokens. As fused.add_rms_norm_kernel, whose normed values are quantized before they are ever rounded."""
    begin(DEPENDENT)
    token = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, ROWS)
    i = block[:, None] * 128 + tl.arange(0, 64)[None, :]
    low_weight = tl.load(weight + i, mask=i < SIZE, other=0.0).to(tl.float32)
    high_weight = tl.load(weight + i + 64, mask=i + 64 < SIZE, other=0.0).to(tl.float32)
    wait(DEPENDENT)
    low = _added(x, residual, token * SIZE + i, stride, i < SIZE, SPLITS)
    high = _added(x, residual, token * SIZE + i + 64, stride, i + 64 < SIZE, SPLITS)
    factor = tl.rsqrt(tl.sum(tl.sum(low * low + high * high, 1), 0) / SIZE + eps)
    _emit(low * factor * low_weight, high * factor * high_weight, values, scales, given, token, block, SIZE, FP8, KIND)


@triton.jit
def _gated(gate_up, place, mask, SIZE: tl.constexpr):
    gate = tl.load(gate_up + place, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + SIZE + place, mask=mask, other=0.0).to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def silu_mul_quantize_kernel(
    gate_up, values, scales, given,
    SIZE: tl.constexpr, ROWS: tl.constexpr, FP8: tl.constexpr, KIND: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: tokens. gate_up [tokens, 2 SIZE]."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    token = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, ROWS)
    i = block[:, None] * 128 + tl.arange(0, 64)[None, :]
    low = _gated(gate_up, token * 2 * SIZE + i, i < SIZE, SIZE)
    high = _gated(gate_up, token * 2 * SIZE + i + 64, i + 64 < SIZE, SIZE)
    _emit(low, high, values, scales, given, token, block, SIZE, FP8, KIND)


def quantize(x: torch.Tensor, dtype: torch.dtype, kind: str, given: torch.Tensor | None = None) -> QuantizedRows:
    """x [t, n] contiguous, in `dtype`, torch.int8 or torch.float8_e4m3fn. kind: TOKEN, GROUPS, or GIVEN with the scale
    `given`, float32 [1]."""
    rows = _rows(x, x.shape[1], dtype, kind, given, x.dtype)
    if len(x):
        blocks, warps = _shape(x.shape[1])
        follows = dependent(x.device)
        quantize_kernel[(len(x),)](
            x, rows.values, rows.scales, given, SIZE=x.shape[1], ROWS=blocks, FP8=dtype != torch.int8, KIND=kind,
            DEPENDENT=follows, num_warps=warps, launch_pdl=follows,
        )  # fmt: skip
    return rows


def add_rms_norm_quantize(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float,
    dtype: torch.dtype, kind: str, given: torch.Tensor | None = None,
) -> QuantizedRows:  # fmt: skip
    """`fused.add_rms_norm` and `quantize` of what it gives, in one."""
    size = residual.shape[-1]
    rows = _rows(residual, size, dtype, kind, given, residual.dtype)
    if len(residual):
        blocks, warps = _shape(size)
        follows = dependent(residual.device)
        add_rms_norm_quantize_kernel[(len(residual),)](
            x, residual, weight, rows.values, rows.scales, given, residual.numel(), eps, SIZE=size, ROWS=blocks,
            SPLITS=splits_of(x), FP8=dtype != torch.int8, KIND=kind, DEPENDENT=follows, num_warps=warps,
            launch_pdl=follows,
        )  # fmt: skip
    return rows


def silu_mul_quantize(
    gate_up: torch.Tensor, dtype: torch.dtype, kind: str, given: torch.Tensor | None = None
) -> QuantizedRows:
    """`fused.silu_mul` of gate_up [t, 2 f] and `quantize` of what it gives, in one."""
    size = gate_up.shape[1] // 2
    rows = _rows(gate_up, size, dtype, kind, given, gate_up.dtype)
    if len(gate_up):
        blocks, warps = _shape(size)
        follows = dependent(gate_up.device)
        silu_mul_quantize_kernel[(len(gate_up),)](
            gate_up, rows.values, rows.scales, given, SIZE=size, ROWS=blocks, FP8=dtype != torch.int8, KIND=kind,
            DEPENDENT=follows, num_warps=warps, launch_pdl=follows,
        )  # fmt: skip
    return rows


def _rows(
    like: torch.Tensor, size: int, dtype: torch.dtype, kind: str, given: torch.Tensor | None, of: torch.dtype
) -> QuantizedRows:
    tokens, blocks = len(like), -(-size // BLOCK)
    values = torch.empty(tokens, blocks * BLOCK, dtype=dtype, device=like.device)
    if kind == GIVEN:
        assert given is not None, "a static scale comes from the checkpoint"
        return QuantizedRows(values, given, of)
    shape = (tokens, blocks) if kind == GROUPS else (tokens,)
    return QuantizedRows(values, torch.empty(shape, dtype=torch.float32, device=like.device), of)


def _shape(size: int) -> tuple[int, int]:
    """(blocks, warps) of a program."""
    blocks = triton.next_power_of_2(-(-size // BLOCK))
    return blocks, warps_for(blocks * BLOCK)
