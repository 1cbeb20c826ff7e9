"""A pass that verifies trees, on the GPU from end to end: inputs from row tables and drafts, which guesses hold, and
the KV cache in order behind them. `engines.native.speculation.verify` is the same on the host.

The host sends a line of 3 + 2 w numbers for each row: its number (−1 is padding), tokens in the KV cache, nodes; tokens
[w]; parents [w]. Every row has 1 + w tokens in the pass, a power of two, of which 1 + nodes are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engines.native.kernels.ancestors import ones

BLOCK = 256  # block ids per copy
ELEMENTS = {1: tl.int8, 2: tl.int16, 4: tl.int32}
"""By their bytes, what keys and values are moved as."""


@dataclass(frozen=True, slots=True)
class PreparedTrees:
    """t = n × (1 + w). token_ids, positions, slots: int64 [t]; words: int32 [t], `Batch.ancestors`; lines, ends: int32
    [t], whose token is drawn behind each, and its index in the sequence; seq_lens: int32 [n]; block_tables: int32
    [n, width]. What is no row's or no node's: token 0 in the null block, of the last line, which is nobody's."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    words: torch.Tensor
    lines: torch.Tensor
    ends: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor


@triton.jit(do_not_specialize=["WIDTH"], do_not_specialize_on_alignment=["words", "lines", "ends"])
def prepare_trees_kernel(
    tokens, tables, sent, token_ids, positions, slots, words, lines, ends, seq_lens, block_tables,
    NOBODY, TOKENS_STRIDE, TABLE_STRIDE, WIDTH, NODES: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: rows."""
    i = tl.program_id(0).to(tl.int64)
    sent += i * (3 + 2 * NODES)
    row = tl.load(sent).to(tl.int64)
    start = tl.load(sent + 1)
    nodes = tl.load(sent + 2)
    real = row >= 0
    row = tl.maximum(row, 0)
    lane = tl.arange(0, NODES + 1)
    known = real & (lane <= nodes)
    word = tl.full([NODES + 1], 1, tl.int32)
    own_bit = word << lane
    for node in range(1, nodes + 1):  # a parent comes before its children
        above = tl.sum(tl.where(lane == tl.load(sent + 2 + NODES + node), word, 0), 0)
        word = tl.where(lane == node, above | own_bit, word)
    position = tl.where(real, start + ones(word) - 1, 0)
    last = tl.load(tokens + row * TOKENS_STRIDE + start, mask=real, other=0)
    token = tl.load(sent + 2 + lane, mask=known & (lane > 0), other=0)
    token = tl.where(lane == 0, last, token)
    block = tl.load(tables + row * TABLE_STRIDE + (start + lane) // PAGE, mask=known, other=0)
    at = i * (NODES + 1) + lane
    tl.store(token_ids + at, token.to(tl.int64))
    tl.store(positions + at, position.to(tl.int64))
    tl.store(slots + at, tl.where(known, block.to(tl.int64) * PAGE + (start + lane) % PAGE, 0))
    tl.store(words + at, word)
    tl.store(lines + at, tl.where(known, row, NOBODY).to(tl.int32))
    tl.store(ends + at, position + 1)
    tl.store(seq_lens + i, tl.where(real, start + NODES + 1, 0))
    wide = tl.arange(0, BLOCK)
    for first in range(0, WIDTH, BLOCK):
        ids = tl.load(tables + row * TABLE_STRIDE + first + wide, mask=(first + wide < WIDTH) & real, other=0)
        tl.store(block_tables + i * WIDTH + first + wide, ids, mask=first + wide < WIDTH)


@triton.jit
def accept_kernel(sent, drawn, tokens, lengths, said, paths, TOKENS_STRIDE, NODES: tl.constexpr):
    """Grid: rows. From the root on: the first child whose token is the one drawn at its parent."""
    i = tl.program_id(0).to(tl.int64)
    sent += i * (3 + 2 * NODES)
    row = tl.load(sent).to(tl.int64)
    start = tl.load(sent + 1)
    nodes = tl.load(sent + 2)
    lane = tl.arange(0, NODES + 1)
    is_node = (lane > 0) & (lane <= nodes)
    guess = tl.load(sent + 2 + lane, mask=is_node, other=-1)
    parent = tl.load(sent + 2 + NODES + lane, mask=is_node, other=-1)
    own = tl.load(drawn + i * (NODES + 1) + lane)
    out = tl.full([NODES + 1], -1, tl.int32)
    path = tl.zeros([NODES + 1], tl.int32)
    count = 0
    node = tl.where(row >= 0, 0, -1)
    while node >= 0:
        token = tl.sum(tl.where(lane == node, own, 0), 0)
        out = tl.where(lane == count, token, out)
        path = tl.where(lane == count, node, path)
        count += 1
        child = tl.min(tl.where((parent == node) & (guess == token), lane, NODES + 1), 0)
        node = tl.where(child <= NODES, child, -1)
    tl.store(said + i * (NODES + 2), count)
    tl.store(said + i * (NODES + 2) + 1 + lane, out)
    tl.store(paths + i * (NODES + 1) + lane, path)
    if row >= 0:
        tl.store(tokens + row * TOKENS_STRIDE + start + 1 + lane, out, mask=lane < count)
        tl.store(lengths + row, start + 1 + count)


@triton.jit(do_not_specialize=["TABLE_STRIDE"])
def compact_kernel(
    planes, sent, said, paths, tables, TABLE_STRIDE, block_stride, head_stride,
    NODES: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, HEAD_BLOCK: tl.constexpr, SIZE_BLOCK: tl.constexpr,
    PAGE: tl.constexpr, ELEMENT: tl.constexpr,
):  # fmt: skip
    """Grid: (rows, planes). planes: int64, addresses of tensors [B, HEADS, PAGE, SIZE] of ELEMENT. No token moves back,
    so that none is overwritten before it has moved; one after the other, as a place may be left and taken."""
    i = tl.program_id(0).to(tl.int64)
    count = tl.load(said + i * (NODES + 2))
    paths += i * (NODES + 1)
    if (count <= 1) | (tl.load(paths + tl.maximum(count - 1, 0)) == count - 1):
        return  # the first chain has held: every token is where it belongs
    sent += i * (3 + 2 * NODES)
    table = tables + tl.load(sent).to(tl.int64) * TABLE_STRIDE
    start = tl.load(sent + 1)
    plane = tl.load(planes + tl.program_id(1)).to(tl.pointer_type(ELEMENT))
    head, inner = tl.arange(0, HEAD_BLOCK), tl.arange(0, SIZE_BLOCK)
    offset = head[:, None] * head_stride + inner[None, :]
    mask = (head < HEADS)[:, None] & (inner < SIZE)[None, :]
    for to in range(1, count):
        source = start + tl.load(paths + to)
        target = start + to
        if source != target:
            source_block = tl.load(table + source // PAGE).to(tl.int64)
            target_block = tl.load(table + target // PAGE).to(tl.int64)
            value = tl.load(plane + source_block * block_stride + source % PAGE * SIZE + offset, mask=mask)
            tl.store(plane + target_block * block_stride + target % PAGE * SIZE + offset, value, mask=mask)
            tl.debug_barrier()  # the next may be written where this one was read


def prepare_trees(
    tokens: torch.Tensor, tables: torch.Tensor, sent: torch.Tensor, *, width: int, block_size: int
) -> PreparedTrees:
    """tokens: int32 [rows, max length] and tables: int32 [rows, blocks], the row tables; sent: int32 [n, 3 + 2 w].
    width: of block_tables."""
    n, nodes = sent.shape[0], (sent.shape[1] - 3) // 2
    token_ids, positions, slots = sent.new_empty(3, n * (nodes + 1), dtype=torch.int64).unbind(0)
    words, lines, ends = sent.new_empty(3, n * (nodes + 1)).unbind(0)
    seq_lens, block_tables = sent.new_empty(n), sent.new_empty(n, width)
    out = PreparedTrees(token_ids, positions, slots, words, lines, ends, seq_lens, block_tables)
    prepare_trees_kernel[(n,)](
        tokens, tables, sent, out.token_ids, out.positions, out.slots, out.words, out.lines, out.ends, out.seq_lens,
        out.block_tables, tokens.shape[0] - 1, tokens.stride(0), tables.stride(0), width,
        NODES=nodes, PAGE=block_size, BLOCK=BLOCK, num_warps=2,
    )  # fmt: skip
    return out


def accept(
    sent: torch.Tensor, drawn: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor, said: torch.Tensor
) -> torch.Tensor:
    """drawn: int32 [n × (1 + w)], behind each token of the pass. said: int32 [n, 2 + w], gets the number of tokens that
    are said, 0 of padding, and them, −1 behind; they go to the row tables tokens and lengths, too. Returns the nodes
    along each path, 0 = the row's last token: int32 [n, 1 + w], 0 behind its end."""
    n, nodes = sent.shape[0], (sent.shape[1] - 3) // 2
    paths = sent.new_empty(n, nodes + 1)
    accept_kernel[(n,)](sent, drawn, tokens, lengths, said, paths, tokens.stride(0), NODES=nodes, num_warps=1)
    return paths


@dataclass(frozen=True, slots=True)
class Planes:
    """Tensors [B, heads, s, …] of one form, `like` one of them; addresses: int64 [planes] on their device. Whoever owns
    the KV cache keeps them alive."""

    addresses: torch.Tensor
    like: torch.Tensor

    @staticmethod
    def of(planes: Sequence[torch.Tensor]) -> list[Planes]:
        forms: dict[tuple[object, ...], list[torch.Tensor]] = {}
        for plane in planes:
            forms.setdefault((plane.shape, plane.stride(), plane.dtype), []).append(plane)
        return [
            Planes(torch.tensor([plane.data_ptr() for plane in alike], device=alike[0].device), alike[0])
            for alike in forms.values()
        ]


def compact(
    planes: Sequence[Planes], sent: torch.Tensor, said: torch.Tensor, paths: torch.Tensor, tables: torch.Tensor
) -> None:
    """In all `planes`, what belongs to the tokens along each path goes behind its row's last token. said, paths: as
    `accept` leaves them; tables: int32 [rows, blocks], the row table."""
    nodes = (sent.shape[1] - 3) // 2
    for group in planes:
        like, (heads, page) = group.like, group.like.shape[1:3]
        size = like.shape[3] if like.dim() == 4 else 1
        compact_kernel[(sent.shape[0], len(group.addresses))](
            group.addresses, sent, said, paths, tables, tables.stride(0), like.stride(0), like.stride(1),
            NODES=nodes, HEADS=heads, SIZE=size, HEAD_BLOCK=triton.next_power_of_2(heads),
            SIZE_BLOCK=triton.next_power_of_2(size), PAGE=page, ELEMENT=ELEMENTS[like.element_size()], num_warps=4,
        )  # fmt: skip
