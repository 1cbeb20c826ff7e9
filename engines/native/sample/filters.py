"""Typical-p, top-k, top-p and min-p, and the draw among what is left."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.sample.noise import gumbel

CANDIDATES = 1024
"""Most likely tokens that are looked at first; all are, where these do not hold the kept set of every row."""

Limits = tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]
"""(top_k on the host, 0 = off; top_p float32; min_p float32), each [m]."""


def draw(scores: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor, limits: Limits | None) -> torch.Tensor:
    """scores: float32 [m, vocab], logits over temperature; seeds, positions: int64 [m] → token ids, int64 [m]."""
    if limits is None:
        every = torch.arange(scores.shape[1], device=scores.device)
        return (scores + gumbel(seeds, positions, every)).argmax(dim=-1)
    values, ids = candidates(scores, limits)
    choice = (values + gumbel(seeds, positions, ids)).argmax(dim=-1, keepdim=True)
    return ids.gather(1, choice)[:, 0]


def candidates(scores: torch.Tensor, limits: Limits) -> tuple[torch.Tensor, torch.Tensor]:
    """(scores with −inf for what is filtered out, token ids), both [m, k], most likely first."""
    vocab = scores.shape[1]
    top_k, top_p, min_p = limits
    bounded = top_k.min() > 0
    width = min(int(top_k.max()), vocab) if bounded else min(CANDIDATES, vocab)
    values, ids = scores.topk(width, dim=-1)
    whole = scores.logsumexp(dim=-1, keepdim=True)
    kept = _kept(values, whole, top_k, top_p, min_p)
    if not bounded and width < vocab and bool(kept[:, -1].any()):  # the set may go on beyond the candidates
        values, ids = scores.sort(dim=-1, descending=True, stable=True)
        kept = _kept(values, whole, top_k, top_p, min_p)
    return values.masked_fill(~kept, -torch.inf), ids


def _kept(
    values: torch.Tensor, whole: torch.Tensor, top_k: NDArray[np.int64], top_p: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """Which of the sorted `values` [m, k] stay; the first always does. `whole` [m, 1]: log of the sum over all."""
    width = values.shape[1]
    limit = torch.from_numpy(np.where(top_k > 0, top_k, np.iinfo(np.int64).max)).to(values.device)
    rank = torch.arange(width, device=values.device)[None]
    within = rank < limit[:, None]
    above = values >= values[:, :1] + min_p.log()[:, None]  # p ≥ min_p × the greatest p
    kept = within & above
    # top-p works on what top-k and min-p leave; where they leave all, on the whole distribution.
    left = torch.where(kept, values, -torch.inf).logsumexp(dim=-1, keepdim=True)
    total = torch.where(kept.all(dim=-1, keepdim=True) & (limit[:, None] > width), whole, left)
    mass = torch.where(kept, (values - total).exp(), 0.0)
    before = mass.cumsum(dim=-1) - mass
    kept &= (before < top_p[:, None]) | (top_p[:, None] >= 1)
    kept[:, 0] = True
    return kept


def typical(logits: torch.Tensor, temperature: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Locally typical sampling (https://arxiv.org/abs/2202.00666), as transformers' TypicalLogitsWarper on
    logits / temperature: tokens whose surprise is nearest the entropy stay, as many as hold `mass`; −inf for others.

    logits: float32 [m, vocab]; temperature, mass: float32 [m, 1], both above 0 → float32 [m, vocab].
    """
    logprobs = (logits / temperature).log_softmax(dim=-1)
    probabilities = logprobs.exp()
    entropy = -(logprobs * probabilities).nansum(dim=-1, keepdim=True)
    distance = (-logprobs - entropy).abs()
    kept = distance <= _furthest(distance, probabilities, mass)
    return logits.masked_fill(~kept, -torch.inf)


def _furthest(distance: torch.Tensor, probabilities: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Greatest distance of the fewest tokens, nearest first, that hold `mass`; float32 [m, 1]."""
    vocab = distance.shape[1]
    # A GPU sorts at once and would have to be waited for; on a CPU the nearest are mostly enough.
    width = min(CANDIDATES, vocab) if distance.device.type == "cpu" else vocab
    while True:
        nearest, order = distance.sort(dim=-1) if width == vocab else distance.topk(width, dim=-1, largest=False)
        held = probabilities.gather(1, order).cumsum(dim=-1)
        if width == vocab or bool((held[:, -1:] >= mass).all()):
            return nearest.gather(1, (held < mass).sum(dim=-1, keepdim=True).clamp_(max=vocab - 1))
        width = vocab
