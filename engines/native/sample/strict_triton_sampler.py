"""The sampler of strict mode on a GPU: the kernels' draws are a program per row and block of the vocabulary; what torch
sums over a vocabulary comes one line at a time, from memory of its own, since how a line is aligned cuts its sums."""

from __future__ import annotations

import numpy as np
import torch

from engines.native.sample import logprobs
from engines.native.sample.triton_sampler import TritonSampler
from engines.native.step import Int32, TokenMasks


class StrictTritonSampler(TritonSampler):
    def score(self, logits: torch.Tensor, tokens: torch.Tensor, top: int) -> tuple[list[float], list[logprobs.Top]]:
        """As `Sampler.score`."""
        values: list[float] = []
        tops: list[logprobs.Top] = []
        for place in range(len(logits)):
            own, best = super().score(logits[place : place + 1].clone(), tokens[place : place + 1], top)
            values += own
            tops += best
        return values, tops

    def _adjusted(self, lines: torch.Tensor, rows: Int32, positions: Int32, masks: TokenMasks | None) -> torch.Tensor:
        drawn = []
        for place in range(len(lines)):
            at = slice(place, place + 1)
            own = None if masks is None else masks.of(np.array([place]))
            drawn.append(super()._adjusted(lines[at].clone(), rows[at], positions[at], own))
        return torch.cat(drawn)
