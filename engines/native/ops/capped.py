"""Attention with capped scores in plain torch: the fused operation of torch has no cap, so the scores are made here."""

from __future__ import annotations

import torch

from engines.native.ops.row_views import DecodeGroup, RowView

SCORES = 4 * 1024 * 1024
"""Scores that exist at once, values: a long chunk is taken in pieces."""


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, view: RowView, scale: float, softcap: float
) -> torch.Tensor:
    """One row. q [t, hq, d] of the batch, its keys and values [hk, keys, d] → [queries, hq, d]."""
    own = q[view.first : view.first + view.queries]
    count, heads, size = own.shape
    seen = k.shape[1]
    mask = view.mask
    if view.causal:
        mask = torch.ones(count, seen, dtype=torch.bool, device=q.device).tril_()
    out = torch.empty_like(own)
    step = max(1, SCORES // (heads * seen))
    for first in range(0, count, step):
        span = slice(first, first + step)
        some = own[span].view(-1, len(k), heads // len(k), size).permute(1, 2, 0, 3)  # [hk, group, queries, d]
        scores = cap_scores(some @ k[:, None].transpose(2, 3), scale, softcap)
        if mask is not None:
            scores.masked_fill_(~mask[span], -torch.inf)
        out[span] = (scores.softmax(-1) @ v[:, None]).permute(2, 0, 1, 3).reshape(-1, heads, size)
    return out


def attend_together(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: DecodeGroup, scale: float, softcap: float
) -> torch.Tensor:
    """One query per row. q [n, hq, d], keys and values [hk × n, keys, d] → [n, hq, d]."""
    kv_heads, size = len(k) // group.rows, q.shape[2]
    own = q.view(group.rows, kv_heads, -1, size).transpose(0, 1).flatten(0, 1)  # [hk × n, hq / hk, d]
    scores = cap_scores(torch.bmm(own, k.transpose(1, 2)), scale, softcap)
    if group.mask is not None:
        scores += group.mask.to(q.dtype)
    out = torch.bmm(scores.softmax(-1), v).view(kv_heads, group.rows, -1, size)
    return out.transpose(0, 1).reshape(q.shape)


def cap_scores(scores: torch.Tensor, scale: float, softcap: float) -> torch.Tensor:
    """Products of queries and keys, written over: softcap × tanh(scale × product / softcap)."""
    return scores.mul_(scale / softcap).tanh_().mul_(softcap)
