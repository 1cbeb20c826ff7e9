"""Which experts a token passes, and in what share. Scores are float32 whatever the activations are."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from engines.native.models.config import Moe

Router = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""x [t, hidden] → (shares [t, active] float32, expert numbers int64 [t, active])."""


def router_for(moe: Moe, weight: torch.Tensor, correction: torch.Tensor | None) -> Router:
    """weight [experts, hidden]; correction [experts], added to the scores for the choice alone."""
    if moe.scoring == "softmax" and moe.groups == 1 and correction is None:
        return _Softmax(moe, weight)
    return _Grouped(moe, weight, correction)


class _Softmax:
    """Mixtral, Qwen, DeepSeek-V2-Lite: the `active` greatest of softmax(W x)."""

    def __init__(self, moe: Moe, weight: torch.Tensor) -> None:
        self._weight, self._active, self._scale = weight, moe.active, moe.scale
        self._finish = _normalised if moe.normalise else _as_they_are

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = F.linear(x, self._weight).softmax(-1, dtype=torch.float32)
        shares, experts = scores.topk(self._active, dim=-1)
        return self._finish(shares) * self._scale, experts


class _Grouped:
    """DeepSeek-V2 and V3: experts in groups, of which the best `top_groups` are open to a token."""

    def __init__(self, moe: Moe, weight: torch.Tensor, correction: torch.Tensor | None) -> None:
        self._moe, self._weight = moe, weight.float()
        self._correction = torch.zeros_like(self._weight[:, 0]) if correction is None else correction.float()
        self._finish = _normalised if moe.normalise else _as_they_are
        self._score = torch.sigmoid if moe.scoring == "sigmoid" else _softmax

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moe = self._moe
        scores = self._score(F.linear(x.float(), self._weight))
        wanted = scores + self._correction
        grouped = wanted.view(len(x), moe.groups, -1)
        best = grouped.topk(min(moe.group_best, grouped.shape[2]), dim=-1).values.sum(-1)
        closed = torch.ones_like(best, dtype=torch.bool).scatter_(1, best.topk(moe.top_groups, dim=-1).indices, False)
        wanted = grouped.masked_fill(closed[..., None], -torch.inf).flatten(1)
        experts = wanted.topk(moe.active, dim=-1).indices
        return self._finish(scores.gather(1, experts)) * moe.scale, experts


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1)


def _normalised(shares: torch.Tensor) -> torch.Tensor:
    return shares / (shares.sum(-1, keepdim=True) + 1e-20)


def _as_they_are(shares: torch.Tensor) -> torch.Tensor:
    return shares
