"""From logits to tokens. Parameters live in columns with one entry per row; a batch is a list of rows.

Order: what the Adjuster does to the raw logits (penalties, bias, what is forbidden, typical-p), temperature, min-p,
top-k, top-p, then the draw. A draw is argmax(logit / temperature + noise(seed, position, token)): it depends on nothing
but the row, so the batch, chunking and preemption change no token. Log-probabilities are of the raw logits.
"""

from __future__ import annotations

import numpy as np
import torch

from engines.native.request import SamplingParams
from engines.native.sample import logprobs
from engines.native.sample import masks as token_masks
from engines.native.sample.adjust import Adjuster
from engines.native.sample.filters import draw
from engines.native.step import Int32, TokenMasks


class Sampler:
    """Owned by the runner. `rows`: number of request slots."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        self.device = device
        self.adjuster = Adjuster(rows, vocab, device)
        self.logprobs = np.full(rows, -1, np.int32)
        self._random = np.zeros(rows, np.bool_)
        self._filtered = np.zeros(rows, np.bool_)
        self._floats = np.zeros((rows, 3), np.float32)  # temperature, top-p, min-p
        self._top_k = np.zeros(rows, np.int64)
        self._seeds = np.zeros(rows, np.int64)

    def look_back_at(self, tokens: torch.Tensor) -> None:
        """The table of each row's tokens, int32 [≥ rows, max tokens] on the device, kept up to date by its owner."""
        self.adjuster.tokens = tokens

    def fill(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        self.logprobs[row] = params.logprobs
        self._random[row] = params.temperature > 0
        self._filtered[row] = params.top_k > 0 or params.top_p < 1 or params.min_p > 0
        self._floats[row] = (params.temperature, params.top_p, params.min_p)
        self._top_k[row] = params.top_k
        self._seeds[row] = np.uint64(params.seed % 2**64).astype(np.int64)
        self.adjuster.fill(row, token_ids, params, prompt_len)

    def sample(
        self, logits: torch.Tensor, rows: Int32, positions: Int32, masks: TokenMasks | None = None
    ) -> torch.Tensor:
        """logits [m, vocab], written over where they are float32; positions: index in its sequence of the token that
        each row draws; masks: of the rows with a grammar. → int64 [m] on the device."""
        logits = logits.float()
        if masks is not None:  # first: what an adjustment leaves is to be found among what the grammar allows
            token_masks.apply(logits, masks)
        self.adjuster.apply(logits, rows, positions)
        random = self._random[rows]
        if not random.any():
            tokens = logits.argmax(dim=-1)
        else:
            tokens = torch.empty(len(rows), dtype=torch.int64, device=self.device)
            self._each(tokens, logits, rows, positions, ~random, None)
            self._each(tokens, logits, rows, positions, random & ~self._filtered[rows], False)
            self._each(tokens, logits, rows, positions, random & self._filtered[rows], True)
        self.adjuster.count(rows, tokens)
        return tokens

    def score(self, logits: torch.Tensor, tokens: torch.Tensor, top: int) -> tuple[list[float], list[logprobs.Top]]:
        """Log-probabilities of raw logits (`logprobs.of_tokens`)."""
        return logprobs.of_tokens(logits, tokens, top)

    def _each(
        self,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        rows: Int32,
        positions: Int32,
        chosen: np.ndarray[tuple[int], np.dtype[np.bool_]],
        filtered: bool | None,
    ) -> None:
        """Draw for the batch positions where `chosen`; filtered None is greedy."""
        if not chosen.any():
            return
        places = torch.from_numpy(np.flatnonzero(chosen)).to(self.device)
        picked = logits if chosen.all() else logits[places]
        if filtered is None:
            tokens[places] = picked.argmax(dim=-1)
            return
        own = rows[chosen]
        temperature, top_p, min_p = (torch.from_numpy(self._floats[own, i]).to(self.device) for i in range(3))
        seeds = torch.from_numpy(self._seeds[own]).to(self.device)
        at = torch.from_numpy(positions[chosen].astype(np.int64)).to(self.device)
        limits = (self._top_k[own], top_p, min_p) if filtered else None
        tokens[places] = draw(picked / temperature[:, None], seeds, at, limits)
