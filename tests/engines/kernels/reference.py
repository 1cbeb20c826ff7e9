"""Plain torch references of the kernels, in float64 unless said otherwise, and the inputs that tests share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass
class Paged:
    """Ragged queries over a paged pool. Pages are dealt out of order; every place that no row owns holds NaN."""

    q: torch.Tensor  # [t, hq, d]
    k_cache: torch.Tensor  # [B, hk, s, d]
    v_cache: torch.Tensor
    cu_query: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    max_query: int
    max_seq: int


def paged_case(
    query_lens: list[int],
    seq_lens: list[int],
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Paged:
    generator = torch.Generator().manual_seed(seed)
    need = [-(-n // page) for n in seq_lens]
    order = (torch.randperm(sum(need), generator=generator) + 1).tolist()
    k_cache = torch.full((sum(need) + 1, kv_heads, page, head_dim), math.nan, dtype=dtype)
    v_cache = k_cache.clone()
    tables = torch.zeros(len(seq_lens), max([*need, 1]) + 1, dtype=torch.int32)
    for row, n in enumerate(seq_lens):
        for index in range(need[row]):
            block = order.pop()
            tables[row, index] = block
            used = min(page, n - index * page)
            for cache in (k_cache, v_cache):
                cache[block, :, :used] = torch.randn(kv_heads, used, head_dim, generator=generator).to(dtype)
    cu_query = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    q = torch.randn(sum(query_lens), heads, head_dim, generator=generator).to(dtype)
    on_device = [
        x.to(device) for x in (q, k_cache, v_cache, cu_query, torch.tensor(seq_lens, dtype=torch.int32), tables)
    ]
    return Paged(*on_device, max_query=max(query_lens), max_seq=max(seq_lens))


def attention(case: Paged, scale: float, window: int) -> torch.Tensor:
    """[t, hq, d] float64; zeros for the tokens of a row whose seq_len is 0."""
    heads, head_dim = case.q.shape[1:]
    kv_heads, page = case.k_cache.shape[1:3]
    out = torch.zeros(case.q.shape, dtype=torch.float64, device=case.q.device)
    for row, n in enumerate(case.seq_lens.tolist()):
        a, b = case.cu_query[row : row + 2].tolist()
        if n == 0 or a == b:
            continue
        blocks = case.block_tables[row, : -(-n // page)].long()
        k, v = (
            c[blocks]
            .transpose(0, 1)
            .reshape(kv_heads, -1, head_dim)[:, :n]
            .double()
            .repeat_interleave(heads // kv_heads, 0)
            for c in (case.k_cache, case.v_cache)
        )
        scores = torch.einsum("qhd,hkd->hqk", case.q[a:b].double(), k) * scale
        back = torch.arange(n - (b - a), n, device=k.device)[:, None] - torch.arange(n, device=k.device)[None, :]
        hidden = (back < 0) | (back >= window) if window else back < 0
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        out[a:b] = torch.einsum("hqk,hkd->qhd", weights, v)
    return out


def relative_error(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """‖value − wanted‖ / ‖wanted‖; NaN stays NaN and fails every comparison."""
    difference = (value.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30)
    return float(difference)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.double().chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


RopeCase = tuple[
    torch.Tensor,  # qkv
    torch.Tensor,  # cos_sin
    torch.Tensor,  # positions
    torch.Tensor,  # slots
    torch.Tensor,  # k_cache
    torch.Tensor,  # v_cache
    torch.Tensor | None,  # q_norm
    torch.Tensor | None,  # k_norm
]


def rope_case(
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page: int,
    norms: tuple[bool, bool],
    dtype: torch.dtype,
    device: str = "cpu",
) -> RopeCase:
    """The arguments of fused.rope_and_cache but eps. The pools hold NaN; slots and positions are scattered."""
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim, device=device).to(dtype)
    positions = torch.randint(0, 64, (tokens,), device=device)
    angles = torch.arange(64, device=device)[:, None] * 10_000.0 ** -(
        torch.arange(head_dim // 2, device=device) * 2 / head_dim
    )
    cos_sin = torch.cat([angles.cos(), angles.sin()], -1)
    blocks = -(-tokens // page) + 2
    slots = torch.randperm(blocks * page, device=device)[:tokens]
    k_cache = torch.full((blocks, kv_heads, page, head_dim), math.nan, dtype=dtype, device=device)
    weights = [torch.randn(head_dim, device=device).to(dtype) if wanted else None for wanted in norms]
    return qkv, cos_sin, positions, slots, k_cache, k_cache.clone(), weights[0], weights[1]


def rope_and_cache(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(q [t, hq, d], k_cache, v_cache), float64; the given pools stay as they are."""
    kv_heads, page, head_dim = k_cache.shape[1:]
    heads = qkv.double().view(qkv.shape[0], -1, head_dim)
    q, k, v = heads.split([heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], 1)
    cos, sin = cos_sin.double()[positions][:, None].chunk(2, -1)

    def rotate(x: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
        if norm is not None:
            x = rms_norm(x, norm, eps)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    k_cache, v_cache = k_cache.double(), v_cache.double()
    k_cache[slots // page, :, slots % page] = rotate(k, k_norm)
    v_cache[slots // page, :, slots % page] = v
    return rotate(q, q_norm), k_cache, v_cache
