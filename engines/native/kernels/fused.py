"""The small kernels between matrix products: each reads its input once and writes its output once.

Arithmetic is float32; results are rounded once, to the dtype of the activations. What a product left as float32
summands [splits, t, n] (`kernels.linear`) is added up where it is read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engines.native.kernels.dependent import begin, dependent, wait

ROPE_HEADS = 8  # heads per program of rope_and_cache: 2 KiB of bf16 at head size 128
SILU_BLOCK = 1024


@triton.jit
def _normed(x, weight, eps, SIZE: tl.constexpr):
    """x [block], zero beyond SIZE, over its root mean square, times weight."""
    return x * tl.rsqrt(tl.sum(x * x, 0) / SIZE + eps) * weight


@triton.jit
def _sum(x, place, stride, mask, SPLITS: tl.constexpr):
    """Values at x + place, or the sum of SPLITS of them, `stride` apart; float32."""
    value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    for split in tl.static_range(1, SPLITS):
        value += tl.load(x + split * stride + place, mask=mask, other=0.0).to(tl.float32)
    return value


@triton.jit
def rms_norm_kernel(x, weight, out, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    """Grid: tokens."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    i = tl.arange(0, BLOCK)
    place = tl.program_id(0).to(tl.int64) * SIZE + i
    value = tl.load(x + place, mask=i < SIZE, other=0.0).to(tl.float32)
    scale = tl.load(weight + i, mask=i < SIZE, other=0.0).to(tl.float32)
    tl.store(out + place, _normed(value, scale, eps, SIZE).to(out.dtype.element_ty), mask=i < SIZE)


@triton.jit
def add_rms_norm_kernel(
    x, residual, weight, out, stride, eps,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: tokens. `residual` becomes x + residual, rounded; the norm is of the rounded sum, as in a plain model."""
    begin(DEPENDENT)
    i = tl.arange(0, BLOCK)
    place = tl.program_id(0).to(tl.int64) * SIZE + i
    wait(DEPENDENT)
    value = _sum(x, place, stride, i < SIZE, SPLITS)
    value += tl.load(residual + place, mask=i < SIZE, other=0.0).to(tl.float32)
    rounded = value.to(residual.dtype.element_ty)
    tl.store(residual + place, rounded, mask=i < SIZE)
    scale = tl.load(weight + i, mask=i < SIZE, other=0.0).to(tl.float32)
    normed = _normed(rounded.to(tl.float32), scale, eps, SIZE)
    tl.store(out + place, normed.to(out.dtype.element_ty), mask=i < SIZE)


@triton.jit
def silu_mul_kernel(gate_up, out, SIZE: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    """Grid: (tokens, blocks of the outputs)."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    token = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up + token * 2 * SIZE + i, mask=i < SIZE, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * 2 * SIZE + SIZE + i, mask=i < SIZE, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + token * SIZE + i, value.to(out.dtype.element_ty), mask=i < SIZE)


@triton.jit
def _rotated(x, y, i, norm, cos_sin, position, eps, HEAD_DIM: tl.constexpr):
    """Halves x, y [heads, block of d/2] of heads, float32, normalised if `norm` is not None, turned to `position`."""
    HALF: tl.constexpr = HEAD_DIM // 2
    if norm is not None:
        scale = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / HEAD_DIM + eps)[:, None]
        x = x * scale * tl.load(norm + i, mask=i < HALF, other=0.0).to(tl.float32)[None, :]
        y = y * scale * tl.load(norm + HALF + i, mask=i < HALF, other=0.0).to(tl.float32)[None, :]
    cos = tl.load(cos_sin + position * HEAD_DIM + i, mask=i < HALF, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(cos_sin + position * HEAD_DIM + HALF + i, mask=i < HALF, other=0.0).to(tl.float32)[None, :]
    return x * cos - y * sin, y * cos + x * sin


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def rope_and_cache_kernel(
    qkv, cos_sin, positions, slots, q_norm, k_norm, q_out, k_out, k_cache, v_cache,
    stride, block_stride, head_stride, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF_BLOCK: tl.constexpr,
    PAGE: tl.constexpr, HEAD_BLOCK: tl.constexpr, Q_BLOCKS: tl.constexpr, KV_BLOCKS: tl.constexpr,
    SPLITS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens, query head blocks, then key head blocks, then value head blocks). k_out: where keys go beside the
    cache, one token after the other, or None."""
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
        cached = (slot // PAGE * block_stride + slot % PAGE * HEAD_DIM + head * head_stride)[:, None] + i[None, :]
        if is_key:
            k_x, k_y = _rotated(x, y, i, k_norm, cos_sin, tl.load(positions + token), eps, HEAD_DIM)
            tl.store(k_cache + cached, k_x.to(k_cache.dtype.element_ty), mask=mask)
            tl.store(k_cache + cached + HALF, k_y.to(k_cache.dtype.element_ty), mask=mask)
            if k_out is not None:
                target = k_out + token * KV_HEADS * HEAD_DIM + place
                tl.store(target, k_x.to(k_out.dtype.element_ty), mask=mask)
                tl.store(target + HALF, k_y.to(k_out.dtype.element_ty), mask=mask)
        else:
            tl.store(v_cache + cached, x.to(v_cache.dtype.element_ty), mask=mask)
            tl.store(v_cache + cached + HALF, y.to(v_cache.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [t, h] contiguous → [t, h]."""
    out = torch.empty_like(x)
    if not x.shape[0]:  # a step of prompt chunks only asks for no logits
        return out
    size = x.shape[-1]
    block = triton.next_power_of_2(size)
    follows = dependent(x.device)
    rms_norm_kernel[(x.shape[0],)](
        x, weight, out, eps, SIZE=size, BLOCK=block, DEPENDENT=follows, num_warps=warps_for(block), launch_pdl=follows
    )
    return out


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm(x + residual) [t, h] for x [t, h], or float32 summands of it [splits, t, h]; `residual` [t, h] is
    overwritten with the sum."""
    out = torch.empty_like(residual)
    if not residual.shape[0]:
        return out
    size = residual.shape[-1]
    block = triton.next_power_of_2(size)
    follows = dependent(x.device)
    add_rms_norm_kernel[(residual.shape[0],)](
        x, residual, weight, out, residual.numel(), eps, SIZE=size, BLOCK=block, SPLITS=splits_of(x),
        DEPENDENT=follows, num_warps=warps_for(block), launch_pdl=follows,
    )  # fmt: skip
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up [t, 2 f] contiguous → silu(first half) × second half, [t, f]."""
    tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(tokens, size)
    follows = dependent(gate_up.device)
    silu_mul_kernel[(tokens, triton.cdiv(size, SILU_BLOCK))](
        gate_up, out, SIZE=size, BLOCK=SILU_BLOCK, DEPENDENT=follows, num_warps=4, launch_pdl=follows
    )
    return out


def rope_and_cache(
    qkv: torch.Tensor, cos_sin: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, k_cache: torch.Tensor,
    v_cache: torch.Tensor, q_norm: torch.Tensor | None, k_norm: torch.Tensor | None, eps: float,
    keys: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """qkv [t, (hq + 2 hk) d] contiguous, or float32 summands of it [splits, t, …] → rotated q [t, hq, d], in the dtype
    of the pools; k and v go to `slots` of the pools [B, hk, s, d].

    keys [t, hk, d], if given, gets the rotated keys too. The pools have equal strides and contiguous pages. cos_sin
    [max position, d], any float dtype; positions and slots int64 [t]; norms [d] or None.
    """
    kv_heads, page, head_dim = k_cache.shape[1:]
    tokens, width = qkv.shape[-2:]
    heads = width // head_dim - 2 * kv_heads
    q = k_cache.new_empty(tokens, heads, head_dim)
    head_block = min(ROPE_HEADS, triton.next_power_of_2(heads))
    q_blocks, kv_blocks = triton.cdiv(heads, head_block), triton.cdiv(kv_heads, head_block)
    follows = dependent(qkv.device)
    rope_and_cache_kernel[(tokens, q_blocks + 2 * kv_blocks)](
        qkv, cos_sin, positions, slots, q_norm, k_norm, q, keys, k_cache, v_cache,
        tokens * width, k_cache.stride(0), k_cache.stride(1), eps,
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, HALF_BLOCK=triton.next_power_of_2(head_dim // 2),
        PAGE=page, HEAD_BLOCK=head_block, Q_BLOCKS=q_blocks, KV_BLOCKS=kv_blocks, SPLITS=splits_of(qkv),
        DEPENDENT=follows, num_warps=2, launch_pdl=follows,
    )  # fmt: skip
    return q


def splits_of(x: torch.Tensor) -> int:
    return x.shape[0] if x.dim() == 3 else 1


def warps_for(block: int) -> int:
    """16 bytes of bf16 per thread and load, within 1 … 16 warps."""
    return max(1, min(16, block // 256))
