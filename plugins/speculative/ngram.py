"""Prompt lookup: what followed the last time that the row's newest tokens stood there. The baseline of the benchmarks.

Longest first: the newest n tokens, n from MAX_N to MIN_N, are looked for in the row's own prompt and output; the
newest place wins. As vLLM's `ngram` and transformers' `prompt_lookup_num_tokens`, without an index.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import NOTHING, Int32, Tree, chain

MIN_N, MAX_N = 2, 4
DRAFTS = 5
CONFIDENCE = 0.6
"""Of each token, before hits are counted (the speculator learns the rest)."""


class Ngram:
    def __init__(self, settings: ProposerSettings) -> None:
        self._history = settings.history
        self._min = int(settings.options.get("min_n", MIN_N))
        self._max = int(settings.options.get("max_n", MAX_N))
        self._drafts = int(settings.options.get("drafts", DRAFTS))

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        """The history is all it reads."""

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        return [
            self._row(row, min(most, self._drafts)) for row, most in zip(rows.tolist(), limit.tolist(), strict=True)
        ]

    def _row(self, row: int, most: int) -> Tree:
        known = int(self._history.known[row])
        tokens = self._history.token_ids[row, :known]
        for n in range(min(self._max, known - 1), self._min - 1, -1):
            places = tokens[: known - n] == tokens[known - n]
            for step in range(1, n):
                places &= tokens[step : known - n + step] == tokens[known - n + step]
            found = np.flatnonzero(places)
            if len(found) and most > 0:
                first = int(found[-1]) + n
                guess = tokens[first : first + most].copy()
                return chain(guess, np.full(len(guess), CONFIDENCE, np.float32))
        return NOTHING

    def observe(self, rows: Int32, since: Int32) -> None:
        """The history has grown by itself."""

    def end(self, row: int) -> None:
        """Nothing is kept."""

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is kept."""
