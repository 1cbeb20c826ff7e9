"""Inputs for kernels: paged pools, ragged batches, sampling tables. Pages are dealt out of order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engines.native.kernels.sampling import SamplingTable
from engines.native.ops.base import Batch


@dataclass(frozen=True, slots=True)
class Heads:
    query: int
    kv: int
    dim: int


@dataclass(slots=True)
class Paged:
    q: torch.Tensor  # [t, hq, d]
    k_cache: torch.Tensor  # [B, hk, s, d]
    v_cache: torch.Tensor
    batch: Batch


def paged(
    queries: list[int], lengths: list[int], heads: Heads, page: int, dtype: torch.dtype, device: torch.device
) -> Paged:
    """Random pools for rows of `lengths` tokens, the last `queries` of which are asked. Block 0 holds NaN."""
    need = [-(-n // page) for n in lengths]
    blocks = sum(need) + 1
    order = (torch.randperm(blocks - 1) + 1).to(torch.int32)
    tables = torch.zeros(len(lengths), max(need), dtype=torch.int32)
    first = 0
    for row, count in enumerate(need):
        tables[row, :count] = order[first : first + count]
        first += count
    k_cache, v_cache = (torch.randn(blocks, heads.kv, page, heads.dim, dtype=dtype, device=device) for _ in range(2))
    k_cache[0] = v_cache[0] = torch.nan
    positions = torch.cat([torch.arange(n - q, n) for q, n in zip(queries, lengths, strict=True)])
    token_row = torch.repeat_interleave(torch.tensor(queries))
    slots = tables[token_row, positions // page].long() * page + positions % page
    cu_query = torch.tensor([0, *queries]).cumsum(0).to(torch.int32)
    batch = Batch(
        token_ids=torch.zeros_like(positions).to(device),
        positions=positions.to(device),
        slots=slots.to(device),
        cu_query=cu_query.to(device),
        seq_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        logits_index=(cu_query[1:] - 1).long().to(device),
        max_query=max(queries),
        max_seq=max(lengths),
    )
    q = torch.randn(len(positions), heads.query, heads.dim, device=device).to(dtype)
    return Paged(q, k_cache, v_cache, batch)


def one_row(case: Paged, row: int) -> Paged:
    """The same row alone, float64: the reference computes rows one by one. Only the pages of the row are kept."""
    batch = case.batch
    a, b = batch.cu_query[row : row + 2].tolist()
    length, page = int(batch.seq_lens[row]), case.k_cache.shape[2]
    used = batch.block_tables[row, : -(-length // page)].long()
    alone = Batch(
        token_ids=batch.token_ids[a:b],
        positions=batch.positions[a:b],
        slots=batch.slots[a:b],
        cu_query=torch.tensor([0, b - a], dtype=torch.int32, device=used.device),
        seq_lens=batch.seq_lens[row : row + 1],
        block_tables=torch.arange(len(used), dtype=torch.int32, device=used.device)[None],
        logits_index=torch.zeros(1, dtype=torch.int64, device=used.device),
        max_query=b - a,
        max_seq=length,
        ancestors=None if batch.ancestors is None else batch.ancestors[a:b],
    )
    return Paged(case.q[a:b].double(), case.k_cache[used].double(), case.v_cache[used].double(), alone)


def sampling_table(rows: int, vocab: int, device: torch.device, **columns: float) -> SamplingTable:
    """Every row with the same parameters, random counts and seeds; what is not given is neutral."""
    neutral = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0, "presence": 0.0, "frequency": 0.0}
    floats = {name: torch.full((rows,), columns.get(name, value), device=device) for name, value in neutral.items()}
    ints = torch.zeros(rows, dtype=torch.int32, device=device)
    counts = torch.randint(0, 3, (rows, vocab), dtype=torch.int32, device=device)
    return SamplingTable(
        **floats,
        top_k=ints + int(columns.get("top_k", 0)),
        seed=torch.randint(0, 2**62, (rows,), device=device),
        output_counts=counts,
        in_prompt=torch.rand(rows, vocab, device=device) < 0.1,
        bias_ids=torch.randint(0, vocab, (rows, 4), dtype=torch.int32, device=device),
        bias_values=torch.randn(rows, 4, device=device),
        bias_len=ints + 4,
        barred_ids=ints[:, None].clone(),
        barred_len=ints.clone(),
        first_stop=torch.zeros(rows, dtype=torch.int64, device=device),
    )
