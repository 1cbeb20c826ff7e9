"""Pages in 8 bits, widened: for chunks of prompts, whose tiles of many queries would each take the same keys apart
again. On an H200 such a tile in 8 bits takes 1.5 (fp8) to 3 times (int8) as long as one in bfloat16; widening
a value moves 3 bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engines.native.kernels import INTERPRETED
from engines.native.kernels.dependent import begin, dependent, wait
from engines.native.kernels.quantized_keys import E4M3_SHIFT, form, high, low
from engines.native.quantized_kv import QuantizedPool


@triton.jit
def _widen(
    source, scales, target, here, there, by_token, head, inside, p, h, c,
    HALF: tl.constexpr, BLOCK_P: tl.constexpr, KV: tl.constexpr, INTERP: tl.constexpr,
):  # fmt: skip
    """One page of one head: int16 at `here` → values at `there`. p, h, c: its tokens, pairs and values."""
    pairs = tl.load(source + here + p[:, None] * HALF + h[None, :], mask=inside[:, None] & (h < HALF)[None, :], other=0)
    if KV == "int8":
        scale = tl.load(scales + by_token + p, mask=inside, other=0.0)
    else:
        shift: tl.constexpr = E4M3_SHIFT if KV == "fp8" else 1.0
        scale = tl.zeros([BLOCK_P], tl.float32) + tl.load(scales + head) * shift
    even = low(pairs, KV, INTERP).to(tl.float32) * scale[:, None]
    odd = high(pairs, KV, INTERP).to(tl.float32) * scale[:, None]
    at = target + there + p[:, None] * (2 * HALF) + c[None, :]
    wide = tl.interleave(even, odd).to(target.dtype.element_ty)
    tl.store(at, wide, mask=inside[:, None] & (c < 2 * HALF)[None, :])


@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["seq_lens", "tables"])
def widen_pages_kernel(
    k_cache, v_cache, k_scales, v_scales, keys, values, seq_lens, tables, table_stride, block_stride, head_stride,
    HALF: tl.constexpr, BLOCK_H: tl.constexpr, PAGE: tl.constexpr, BLOCK_P: tl.constexpr, KV: tl.constexpr,
    INTERP: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: (pages of a row, KV heads, rows). k_cache, v_cache: int16; block_stride, head_stride: in pairs. keys,
    values [rows × pages, hk, s, d]; what stands behind a row's end is left as it was."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    page, head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    left = tl.load(seq_lens + row) - page * PAGE
    if left <= 0:
        return
    p, h, c = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_H), tl.arange(0, 2 * BLOCK_H)
    inside = p < tl.minimum(left, PAGE)
    here = tl.load(tables + row * table_stride + page).to(tl.int64) * block_stride + head * head_stride
    there = ((row * tl.num_programs(0) + page) * tl.num_programs(1) + head) * (PAGE * 2 * HALF)
    by_token = here // HALF
    _widen(k_cache, k_scales, keys, here, there, by_token, head, inside, p, h, c, HALF, BLOCK_P, KV, INTERP)
    _widen(v_cache, v_scales, values, here, there, by_token, head, inside, p, h, c, HALF, BLOCK_P, KV, INTERP)


def widen_pages(
    k_cache: QuantizedPool, v_cache: QuantizedPool, seq_lens: torch.Tensor, block_tables: torch.Tensor, pages: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of the first `pages` pages of each row, one row behind the other: [rows × pages, hk, s, d] each, in the
    dtype that the pools are read in. seq_lens int32 [rows], block_tables int32 [rows, width] as for
    `paged_attention`; what stands behind a row's end is undefined."""
    kv_heads, page, head_dim = k_cache.shape[1:]
    rows = seq_lens.numel()
    keys, values = (
        torch.empty(rows * pages, kv_heads, page, head_dim, dtype=k_cache.dtype, device=k_cache.device)
        for _ in range(2)
    )
    follows = dependent(k_cache.device)
    k_pairs, v_pairs = k_cache.values.view(torch.int16), v_cache.values.view(torch.int16)
    widen_pages_kernel[(pages, kv_heads, rows)](
        k_pairs, v_pairs, k_cache.scales, v_cache.scales, keys, values, seq_lens, block_tables,
        block_tables.stride(0), k_pairs.stride(0), k_pairs.stride(1),
        HALF=head_dim // 2, BLOCK_H=triton.next_power_of_2(head_dim // 2),
        PAGE=page, BLOCK_P=triton.next_power_of_2(page), KV=form(k_cache.kind, k_cache.device),
        INTERP=INTERPRETED, DEPENDENT=follows, num_warps=4, launch_pdl=follows,
    )  # fmt: skip
    return keys, values
