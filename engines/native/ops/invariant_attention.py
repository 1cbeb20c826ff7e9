"""Attention in plain torch whose sums follow from a query and its keys alone, not from what else is in the pass.

A library cuts a product by its shape, and another cut is another order of sums. Three things keep the order: few lines
are padded, since a product of one to three lines is made otherwise; keys are padded to whole runs, so that no softmax
has a rest of its own; and values are summed over fixed runs of keys, counted from the row's first token. Measured with
MKL on AVX2: the same bits for 4 to 1,000 lines, any number of rows and of keys. It is no contract of the library, so
strict mode tries it out on the loaded model (`engines.native.strict`). Scores and sums are at least float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engines.native.ops.row_views import SUMMED, DecodeGroup, Piece

LINES = 4
"""The least that a product has; the rest of a few is zeros."""


def attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, piece: Piece, scale: float, softcap: float
) -> torch.Tensor:
    """Queries of one row. q [t, hq, d] of the batch, keys and values [hk, keys, d] of the row, in the dtype to compute
    in → [queries, hq, d]."""
    own = q[piece.first : piece.first + piece.queries]
    queries, heads, size = own.shape
    group = heads // len(keys)
    own = own.to(keys.dtype).view(queries, -1, group, size)
    lines = _lines(own.transpose(0, 1).reshape(-1, queries * group, size))
    seen = keys[:, : piece.keys].transpose(1, 2)
    scores = torch.baddbmm(lines.new_zeros(1), lines, seen, beta=0, alpha=scale)
    if softcap:
        _cap(scores, softcap)
    masked = scores[:, : queries * group, piece.keys - piece.mask.shape[1] :]
    masked.view(len(keys), queries, group, -1).add_(piece.mask[:, None])
    out = _summed(scores.softmax(-1), values[:, : piece.keys])[:, : queries * group]
    return out.reshape(-1, queries, group, size).transpose(0, 1).reshape(queries, heads, size).to(q.dtype)


def attend_together(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: DecodeGroup, scale: float, softcap: float
) -> torch.Tensor:
    """One query per row. q [n, hq, d], keys and values [hk × n, keys, d], in the dtype to compute in → [n, hq, d]."""
    kv_heads, size = len(keys) // group.rows, q.shape[2]
    lines = q.to(keys.dtype).view(group.rows, kv_heads, -1, size).transpose(0, 1).flatten(0, 1)  # [hk × n, hq / hk, d]
    count, lines, seen = lines.shape[1], _lines(lines), keys.transpose(1, 2)
    if softcap:
        scores = _cap(torch.baddbmm(lines.new_zeros(1), lines, seen, beta=0, alpha=scale), softcap).add_(group.mask)
    else:
        scores = torch.baddbmm(group.mask.to(lines.dtype), lines, seen, alpha=scale)
    out = _summed(scores.softmax(-1), values).view(kv_heads, group.rows, -1, size)
    return out[:, :, :count].transpose(0, 1).reshape(q.shape).to(q.dtype)


def _lines(lines: torch.Tensor) -> torch.Tensor:
    """No fewer than a product must have."""
    few = LINES - lines.shape[1]
    return F.pad(lines, (0, 0, 0, few)) if few > 0 else lines


def _cap(scores: torch.Tensor, softcap: float) -> torch.Tensor:
    """Written over: softcap × tanh(score / softcap)."""
    return scores.div_(softcap).tanh_().mul_(softcap)


def _summed(shares: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """shares [b, l, keys] of values [b, keys, d] → [b, l, d], a run of keys after the other."""
    keys = values.shape[1]
    if keys <= SUMMED:
        return torch.bmm(shares, values)
    out = torch.bmm(shares[..., :SUMMED], values[:, :SUMMED])
    for first in range(SUMMED, keys, SUMMED):
        run = slice(first, first + SUMMED)
        out.baddbmm_(shares[..., run], values[:, run])
    return out
