"""`fused.rope_and_cache` for pools in 8 bits: keys and values are rounded as they are written."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engines.native.kernels.dependent import begin, dependent, wait
from engines.native.kernels.fused import ROPE_HEADS, _rotated, _sum, splits_of
from engines.native.quantized_kv import FP8_MOST, INT8_MOST, LEAST, QuantizedPool

_FP8_MOST, _INT8_MOST, _LEAST = tl.constexpr(FP8_MOST), tl.constexpr(INT8_MOST), tl.constexpr(LEAST)
_TO_WHOLE = tl.constexpr(
    1.5 * 2**23
)  # added and taken away: a float32 rounded to the nearest whole number, ties to even


@triton.jit
def _e4m3(x):
    """float32, within ±448 → the bits of the nearest e4m3, int32; by hand, as FP8 is unknown to sm_80."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - 960  # exponents are off by 127 − 7, and have 3 bits behind
    tiny = (tl.abs(x) + 16384.0).to(tl.int32, bitcast=True) & 0xF  # 2¹⁴ has steps of 2⁻⁹, the smallest e4m3
    return tl.where(size < 0x3C800000, tiny, normal) | ((bits >> 24) & 0x80)  # 2⁻⁶, the smallest with its full digits


@triton.jit
def _store(
    x, y, cache, scales, cached, by_token, head, mask, HALF: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr
):
    """Halves x, y [heads, block of d/2] of heads, float32. by_token: [heads], where their scales stand."""
    if KV == "fp8":
        scale = tl.load(scales + head, mask=head < HEADS, other=1.0)[:, None]
        x = _e4m3(tl.minimum(tl.maximum(x / scale, -_FP8_MOST), _FP8_MOST))
        y = _e4m3(tl.minimum(tl.maximum(y / scale, -_FP8_MOST), _FP8_MOST))
    else:
        scale = tl.maximum(tl.maximum(tl.max(tl.abs(x), 1), tl.max(tl.abs(y), 1)), _LEAST) / _INT8_MOST
        x = (x / scale[:, None] + _TO_WHOLE) - _TO_WHOLE
        y = (y / scale[:, None] + _TO_WHOLE) - _TO_WHOLE
        tl.store(scales + by_token, scale, mask=head < HEADS)
    tl.store(cache + cached, x.to(tl.int8), mask=mask)
    tl.store(cache + cached + HALF, y.to(tl.int8), mask=mask)


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def quantized_rope_and_cache_kernel(
    qkv, cos_sin, positions, slots, q_norm, k_norm, q_out, k_out, k_cache, v_cache, k_scales, v_scales,
    stride, block_stride, head_stride, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF_BLOCK: tl.constexpr,
    PAGE: tl.constexpr, HEAD_BLOCK: tl.constexpr, Q_BLOCKS: tl.constexpr, KV_BLOCKS: tl.constexpr,
    SPLITS: tl.constexpr, DEPENDENT: tl.constexpr, KV: tl.constexpr,
):  # fmt: skip
    """As `fused.rope_and_cache_kernel`; k_out gets the keys before they are rounded to 8 bits. KV: "fp8" | "int8"."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    i = tl.arange(0, HALF_BLOCK)
    lane = tl.arange(0, HEAD_BLOCK)
    source = qkv + token * (HEADS + 2 * KV_HEADS) * HEAD_DIM
    if part < Q_BLOCKS:
        head = part * HEAD_BLOCK + lane
        mask = (head < HEADS)[:, None] & (i < HALF)[None, :]
        place = head[:, None] * HEAD_DIM + i[None, :]
        x = _sum(source, place, stride, mask, SPLITS)
        y = _sum(source, place + HALF, stride, mask, SPLITS)
        q_x, q_y = _rotated(x, y, i, q_norm, cos_sin, tl.load(positions + token), eps, HEAD_DIM)
        target = q_out + token * HEADS * HEAD_DIM + place
        tl.store(target, q_x.to(q_out.dtype.element_ty), mask=mask)
        tl.store(target + HALF, q_y.to(q_out.dtype.element_ty), mask=mask)
    else:
        slot = tl.load(slots + token)
        is_key = part < Q_BLOCKS + KV_BLOCKS
        head = (part - Q_BLOCKS) % KV_BLOCKS * HEAD_BLOCK + lane
        mask = (head < KV_HEADS)[:, None] & (i < HALF)[None, :]
        source += tl.where(is_key, HEADS, HEADS + KV_HEADS) * HEAD_DIM
        place = head[:, None] * HEAD_DIM + i[None, :]
        x = _sum(source, place, stride, mask, SPLITS)
        y = _sum(source, place + HALF, stride, mask, SPLITS)
        line = slot // PAGE * block_stride + slot % PAGE * HEAD_DIM + head * head_stride
        cached = line[:, None] + i[None, :]
        by_token = line // HEAD_DIM
        if is_key:
            k_x, k_y = _rotated(x, y, i, k_norm, cos_sin, tl.load(positions + token), eps, HEAD_DIM)
            _store(k_x, k_y, k_cache, k_scales, cached, by_token, head, mask, HALF, KV_HEADS, KV)
            if k_out is not None:
                target = k_out + token * KV_HEADS * HEAD_DIM + place
                tl.store(target, k_x.to(k_out.dtype.element_ty), mask=mask)
                tl.store(target + HALF, k_y.to(k_out.dtype.element_ty), mask=mask)
        else:
            _store(x, y, v_cache, v_scales, cached, by_token, head, mask, HALF, KV_HEADS, KV)


def quantized_rope_and_cache(
    qkv: torch.Tensor, cos_sin: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, k_cache: QuantizedPool,
    v_cache: QuantizedPool, q_norm: torch.Tensor | None, k_norm: torch.Tensor | None, eps: float,
    keys: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """As `fused.rope_and_cache`, for pools of one kind in 8 bits; q and `keys` have the dtype that they are read in."""
    kv_heads, page, head_dim = k_cache.shape[1:]
    tokens, width = qkv.shape[-2:]
    heads = width // head_dim - 2 * kv_heads
    q = torch.empty(tokens, heads, head_dim, dtype=k_cache.dtype, device=qkv.device)
    head_block = min(ROPE_HEADS, triton.next_power_of_2(heads))
    q_blocks, kv_blocks = triton.cdiv(heads, head_block), triton.cdiv(kv_heads, head_block)
    follows = dependent(qkv.device)
    quantized_rope_and_cache_kernel[(tokens, q_blocks + 2 * kv_blocks)](
        qkv, cos_sin, positions, slots, q_norm, k_norm, q, keys,
        k_cache.values, v_cache.values, k_cache.scales, v_cache.scales,
        tokens * width, k_cache.values.stride(0), k_cache.values.stride(1), eps,
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, HALF_BLOCK=triton.next_power_of_2(head_dim // 2),
        PAGE=page, HEAD_BLOCK=head_block, Q_BLOCKS=q_blocks, KV_BLOCKS=kv_blocks, SPLITS=splits_of(qkv),
        DEPENDENT=follows, KV=k_cache.kind, num_warps=2, launch_pdl=follows,
    )  # fmt: skip
    return q
