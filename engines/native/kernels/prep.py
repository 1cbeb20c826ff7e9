"""The inputs of a step, made on the GPU from the row tables in one launch: the host sends row numbers and counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

BLOCK = 256  # tokens of a row per program, and block ids per copy


@dataclass(frozen=True, slots=True)
class Prepared:
    """token_ids, positions, slots: int64 [t]; seq_lens, lines: int32 [n]; block_tables: int32 [n, width];
    logits_index: int64 [m]. lines: of the row tables; padding has the last, which is nobody's."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    seq_lens: torch.Tensor
    lines: torch.Tensor
    block_tables: torch.Tensor
    logits_index: torch.Tensor


@triton.jit(
    do_not_specialize=["WIDTH"], do_not_specialize_on_alignment=["rows", "starts", "cu_query", "ranks"]
)  # fmt: skip
def prepare_kernel(
    tokens, tables, rows, starts, cu_query, ranks, token_ids, positions, slots, seq_lens, lines,
    block_tables, logits_index, NOBODY, TOKENS_STRIDE, TABLE_STRIDE, WIDTH, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: (rows of the batch, chunks of the longest query)."""
    i = tl.program_id(0)
    row = tl.load(rows + i).to(tl.int64)
    start = tl.load(starts + i)
    first = tl.load(cu_query + i)
    count = tl.load(cu_query + i + 1) - first
    real = row >= 0
    row = tl.maximum(row, 0)
    lane = tl.arange(0, BLOCK)
    k = tl.program_id(1) * BLOCK + lane
    inside = k < count
    known = inside & real
    position = (start + k).to(tl.int64)
    token = tl.load(tokens + row * TOKENS_STRIDE + position, mask=known, other=0)
    block = tl.load(tables + row * TABLE_STRIDE + position // PAGE, mask=known, other=0)
    tl.store(token_ids + first + k, token.to(tl.int64), mask=inside)
    tl.store(positions + first + k, tl.where(real, position, 0), mask=inside)
    tl.store(slots + first + k, tl.where(real, block.to(tl.int64) * PAGE + position % PAGE, 0), mask=inside)
    if tl.program_id(1) == 0:
        tl.store(seq_lens + i, tl.where(real, start + count, 0))
        tl.store(lines + i, tl.where(real, row, NOBODY).to(tl.int32))
        rank = tl.load(ranks + i)
        if rank >= 0:
            tl.store(logits_index + rank, (first + count - 1).to(tl.int64))
        for at in range(0, WIDTH, BLOCK):
            ids = tl.load(tables + row * TABLE_STRIDE + at + lane, mask=(at + lane < WIDTH) & real, other=0)
            tl.store(block_tables + i.to(tl.int64) * WIDTH + at + lane, ids, mask=at + lane < WIDTH)


def prepare(
    tokens: torch.Tensor, tables: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, cu_query: torch.Tensor,
    ranks: torch.Tensor, *, total: int, logits: int, width: int, block_size: int, max_query: int,
) -> Prepared:  # fmt: skip
    """tokens: int32 [rows, max length] and tables: int32 [rows, blocks], the row tables.

    rows, starts, ranks: int32 [n]; cu_query: int32 [n + 1]. Batch position i computes the tokens of row rows[i] from
    starts[i] on; ranks[i] is the place of its last token among those that need logits, −1 for none. rows[i] = −1 is
    padding: its tokens go to the null block and its seq_len is 0. total, logits, width: t, m, width of block_tables.
    """
    n = rows.numel()
    out = Prepared(
        token_ids=rows.new_empty(total, dtype=torch.int64),
        positions=rows.new_empty(total, dtype=torch.int64),
        slots=rows.new_empty(total, dtype=torch.int64),
        seq_lens=torch.empty_like(rows),
        lines=torch.empty_like(rows),
        block_tables=rows.new_empty(n, width),
        logits_index=rows.new_empty(logits, dtype=torch.int64),
    )
    prepare_kernel[(n, triton.cdiv(max_query, BLOCK))](
        tokens, tables, rows, starts, cu_query, ranks, out.token_ids, out.positions, out.slots, out.seq_lens, out.lines,
        out.block_tables, out.logits_index, tokens.shape[0] - 1, tokens.stride(0), tables.stride(0), width,
        PAGE=block_size, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return out
