"""Log-probabilities of raw logits, for rows that asked."""

from __future__ import annotations

import torch

Top = tuple[list[int], list[float]]
"""Ids and log-probabilities of the most likely tokens, best first."""


def of_tokens(logits: torch.Tensor, tokens: torch.Tensor, top: int) -> tuple[list[float], list[Top]]:
    """logits [m, vocab], tokens int64 [m] → the tokens' log-probabilities, and per line the `top` best."""
    logits = logits.float()
    whole = logits.logsumexp(dim=-1, keepdim=True)
    own = (logits.gather(1, tokens[:, None]) - whole)[:, 0].tolist()
    if top <= 0:
        return own, [([], [])] * len(own)
    values, ids = logits.topk(top, dim=-1)
    return own, list(zip(ids.tolist(), (values - whole).tolist(), strict=True))
