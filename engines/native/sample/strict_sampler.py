"""The sampler of strict mode: sums over a vocabulary one row at a time, so that neither a filter's width nor the place
where a library cuts its work between threads follows from another row."""

from __future__ import annotations

import numpy as np
import torch

from engines.native.sample import logprobs
from engines.native.sample.sampler import Sampler
from engines.native.step import Int32


class StrictSampler(Sampler):
    def score(self, logits: torch.Tensor, tokens: torch.Tensor, top: int) -> tuple[list[float], list[logprobs.Top]]:
        """As `Sampler.score`."""
        values: list[float] = []
        tops: list[logprobs.Top] = []
        for place in range(len(logits)):
            own, best = super().score(logits[place : place + 1], tokens[place : place + 1], top)
            values += own
            tops += best
        return values, tops

    def _each(
        self,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        rows: Int32,
        positions: Int32,
        chosen: np.ndarray[tuple[int], np.dtype[np.bool_]],
        filtered: bool | None,
    ) -> None:
        """As `Sampler._each`. Greedy rows compare and add nothing: they stay together."""
        if filtered is None:
            super()._each(tokens, logits, rows, positions, chosen, None)
            return
        for place in np.flatnonzero(chosen).tolist():
            own = slice(place, place + 1)
            super()._each(tokens[own], logits[own], rows[own], positions[own], chosen[own], filtered)
