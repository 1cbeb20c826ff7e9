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
