"""Attention's loop over keys and values in 8 bits (`engines.native.quantized_kv`), for `kernels.attention`.

Two neighbouring values are read as one number of 16 bits and taken apart in registers, into float16, which holds every
int8 and every e4m3 exactly: so keys and values go through the pipeline as halves of a head would. Each of the two
products is then a sum over the even and one over the odd values of a head. A GPU that knows FP8 (sm_89 on) converts it
with an instruction, any other by shifting bits.

Scales stay out of the products. fp8: of keys into the factor of the scores, of values into the result. int8: of a
token's key into its scores; of its value into its probabilities, whose reference is the greatest probability × scale,
so that what is multiplied lies in 0 … 1, whatever the scales are.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

from engines.native.kernels.ancestors import sees

FP8_UNIT = "fp8 unit"
"""Form of "fp8" pools where the GPU has the instruction."""
FP16_MOST = tl.constexpr(65504.0)
E4M3_SHIFT = tl.constexpr(256.0)
"""The bits of an e4m3 in float16's places read as its value / 2⁸: exponents are off by 15 − 7."""

# Two numbers of 16 bits at a time, which the compiler doesn't find by itself. A function for each byte, and no function
# for both: whose results go to two products would be computed for each.
_FP8_LOW = tl.constexpr("""{
    .reg .b32 size, sign;
    shl.b32 size, $1, 7;
    shl.b32 sign, $1, 8;
    and.b32 size, size, 0x3f803f80;
    lop3.b32 $0, sign, 0x80008000, size, 0xea;
}""")
_FP8_HIGH = tl.constexpr("""{
    .reg .b32 size;
    shr.u32 size, $1, 1;
    and.b32 size, size, 0x3f803f80;
    lop3.b32 $0, $1, 0x80008000, size, 0xea;
}""")
_FP8_SORT = tl.constexpr("prmt.b32 $0, $1, 0, 0x3120;")  # both lower bytes, then both upper ones
_FP8_UNIT_LOW = tl.constexpr("""{
    .reg .b16 low, high;
    mov.b32 {low, high}, $1;
    cvt.rn.f16x2.e4m3x2 $0, low;
}""")
_FP8_UNIT_HIGH = tl.constexpr("""{
    .reg .b16 low, high;
    mov.b32 {low, high}, $1;
    cvt.rn.f16x2.e4m3x2 $0, high;
}""")
_INT8_LOW = tl.constexpr("""{
    .reg .b32 bias, biased;
    mov.b32 bias, 0x64806480;
    lop3.b32 biased, $1, 0x00ff00ff, bias, 0x6a;
    sub.f16x2 $0, biased, bias;
}""")
_INT8_HIGH = tl.constexpr("""{
    .reg .b32 bias, biased;
    mov.b32 bias, 0x64806480;
    shr.u32 biased, $1, 8;
    lop3.b32 biased, biased, 0x00ff00ff, bias, 0x6a;
    sub.f16x2 $0, biased, bias;
}""")


@triton.jit
def low(pairs, KV: tl.constexpr, INTERP: tl.constexpr):
    """int16 → float16 of the lower bytes, which are the even values. int8: 1024 + 128 + value is made of bits."""
    if INTERP:
        bits = pairs.to(tl.uint16, bitcast=True)
        if KV == "fp8":
            return (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True)
        return ((bits & 0xFF) ^ 0x6480).to(tl.float16, bitcast=True) - 1152.0
    if KV == "fp8 unit":
        sorted_ = tl.inline_asm_elementwise(_FP8_SORT, "=r,r", [pairs], dtype=tl.int16, is_pure=True, pack=2)
        return tl.inline_asm_elementwise(_FP8_UNIT_LOW, "=r,r", [sorted_], dtype=tl.float16, is_pure=True, pack=2)
    return tl.inline_asm_elementwise(
        _FP8_LOW if KV == "fp8" else _INT8_LOW, "=r,r", [pairs], dtype=tl.float16, is_pure=True, pack=2
    )


@triton.jit
def high(pairs, KV: tl.constexpr, INTERP: tl.constexpr):
    """As `low`, of the upper bytes."""
    if INTERP:
        bits = pairs.to(tl.uint16, bitcast=True)
        if KV == "fp8":
            return ((bits & 0x8000) | ((bits >> 1) & 0x3F80)).to(tl.float16, bitcast=True)
        return ((bits >> 8) ^ 0x6480).to(tl.float16, bitcast=True) - 1152.0
    if KV == "fp8 unit":
        sorted_ = tl.inline_asm_elementwise(_FP8_SORT, "=r,r", [pairs], dtype=tl.int16, is_pure=True, pack=2)
        return tl.inline_asm_elementwise(_FP8_UNIT_HIGH, "=r,r", [sorted_], dtype=tl.float16, is_pure=True, pack=2)
    return tl.inline_asm_elementwise(
        _FP8_HIGH if KV == "fp8" else _INT8_HIGH, "=r,r", [pairs], dtype=tl.float16, is_pure=True, pack=2
    )


@triton.jit
def _tiles(
    even, odd, q_pos, word, context, top, total, acc_even, acc_odd, k_cache, v_cache, k_scales, v_scales, table,
    block_stride, first, end, scale, inner,
    HALF: tl.constexpr, BLOCK_H: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, WINDOW: tl.constexpr,
    MASKED: tl.constexpr, WIDE: tl.constexpr, INTERP: tl.constexpr, CAPPED: tl.constexpr, KV: tl.constexpr,
    TREE: tl.constexpr,
):  # fmt: skip
    """As `attention._keys`: the keys [first, end) of one row, in tiles of BLOCK_N. inner: CAPPED, what goes into the
    hyperbolic tangent; of int8 the keys' scales come to it."""
    h = tl.arange(0, BLOCK_H)
    n = tl.arange(0, BLOCK_N)
    page = tl.load(table + (first + n) // PAGE, mask=first + n < end, other=0)
    for start in range(first, end, BLOCK_N):
        k_pos = start + n
        inside = k_pos < end
        if WIDE:
            page = page.to(tl.int64)
        place = page * block_stride + k_pos % PAGE * HALF
        k_at = k_cache + h[:, None] + place[None, :]  # keys stand upright: what is between a load and its product is
        v_at = v_cache + place[:, None] + h[None, :]  # then done in the product's own registers
        if KV == "int8":
            by_token = place // HALF
        page = tl.load(table + (k_pos + BLOCK_N) // PAGE, mask=k_pos + BLOCK_N < end, other=0)
        if MASKED:
            k = tl.load(k_at, mask=inside[None, :] & (h[:, None] < HALF), other=0)
            v = tl.load(v_at, mask=inside[:, None] & (h[None, :] < HALF), other=0)
            if KV == "int8":
                k_scale = tl.load(k_scales + by_token, mask=inside, other=1.0)
                v_scale = tl.load(v_scales + by_token, mask=inside, other=1.0)
        else:
            if BLOCK_H != HALF:
                k = tl.load(k_at, mask=h[:, None] < HALF, other=0)
                v = tl.load(v_at, mask=h[None, :] < HALF, other=0)
            else:
                k = tl.load(k_at)
                v = tl.load(v_at)
            if KV == "int8":
                k_scale = tl.load(k_scales + by_token)
                v_scale = tl.load(v_scales + by_token)
        s = tl.dot(even, low(k, KV, INTERP).to(even.dtype), input_precision="ieee")
        s = tl.dot(odd, high(k, KV, INTERP).to(even.dtype), s, input_precision="ieee")
        if KV == "int8":
            s = s * k_scale[None, :]
        if CAPPED:
            s = 2.0 * tl.sigmoid(s * inner) - 1.0
        s = s * scale
        if MASKED:
            seen = sees(k_pos, q_pos, word, context, WINDOW, TREE) & inside[None, :]
            s = tl.where(seen, s, float("-inf"))
        weighed = s
        if KV == "int8":
            weighed = s + tl.log2(v_scale)[None, :]
        top_new = tl.maximum(top, tl.max(weighed, 1))
        shift = top_new
        if MASKED:
            shift = tl.where(top_new == float("-inf"), 0.0, top_new)  # a row that has seen no key yet
        p = tl.exp2(s - shift[:, None])
        keep = tl.exp2(top - shift)
        total = total * keep + tl.sum(p, 1)
        if KV == "int8":
            p = p * v_scale[None, :]
        p = p.to(even.dtype)
        acc_even = tl.dot(p, low(v, KV, INTERP).to(even.dtype), acc_even * keep[:, None], input_precision="ieee")
        acc_odd = tl.dot(p, high(v, KV, INTERP).to(even.dtype), acc_odd * keep[:, None], input_precision="ieee")
        top = top_new
    return top, total, acc_even, acc_odd


@triton.jit
def quantized_keys(
    query, q_pos, word, context, k_cache, v_cache, k_scales, v_scales, table, block_stride, head, head_stride,
    first, whole, end, scale,
    BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr, TWICE: tl.constexpr, WIDE: tl.constexpr, INTERP: tl.constexpr, INNER: tl.constexpr,
    KV: tl.constexpr, TREE: tl.constexpr,
):  # fmt: skip
    """(top, total, acc) of the keys [first, end), those before `whole` without masks (TWICE: there
    may be such). query [M, D]; k_cache, v_cache:
    int16, of this head; block_stride, head_stride: in pairs. k_scales, v_scales: of all heads."""
    HALF: tl.constexpr = HEAD_DIM // 2
    if not INTERP and query.dtype != tl.float32:
        query = tl.clamp(query.to(tl.float32), -FP16_MOST, FP16_MOST).to(tl.float16)
    even, odd = tl.split(tl.reshape(query, [BLOCK_M, BLOCK_D // 2, 2]))
    inner = INNER * 1.0
    shift: tl.constexpr = E4M3_SHIFT if KV == "fp8" else 1.0
    if KV != "int8":
        k_scale = tl.load(k_scales + head) * shift
        if INNER > 0:
            inner = inner * k_scale
        else:
            scale = scale * k_scale
    else:
        k_scales += head.to(tl.int64) * (head_stride // HALF)
        v_scales += head.to(tl.int64) * (head_stride // HALF)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc_even = tl.zeros([BLOCK_M, BLOCK_D // 2], tl.float32)
    acc_odd = tl.zeros([BLOCK_M, BLOCK_D // 2], tl.float32)
    if TWICE:
        top, total, acc_even, acc_odd = _tiles(
            even, odd, q_pos, word, context, top, total, acc_even, acc_odd, k_cache, v_cache, k_scales, v_scales,
            table, block_stride, first, whole, scale, inner,
            HALF, BLOCK_D // 2, PAGE, BLOCK_N, WINDOW, False, WIDE, INTERP, INNER > 0, KV, TREE,
        )  # fmt: skip
    top, total, acc_even, acc_odd = _tiles(
        even, odd, q_pos, word, context, top, total, acc_even, acc_odd, k_cache, v_cache, k_scales, v_scales,
        table, block_stride, whole, end, scale, inner,
        HALF, BLOCK_D // 2, PAGE, BLOCK_N, WINDOW, True, WIDE, INTERP, INNER > 0, KV, TREE,
    )  # fmt: skip
    acc = tl.interleave(acc_even, acc_odd)
    if KV != "int8":
        acc = acc * (tl.load(v_scales + head) * shift)
    return top, total, acc


@cache
def form(kind: str, device: torch.device) -> str:
    """How pools of a kind are taken apart on a device: `KV` of the kernels."""
    unit = kind == "fp8" and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)
    return FP8_UNIT if unit else kind
