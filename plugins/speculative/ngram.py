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
TOKEN = 4
"""Bytes."""


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
        if most <= 0:
            return NOTHING
        known = int(self._history.known[row])
        tokens = self._history.token_ids[row, :known]
        text = tokens.tobytes()
        for n in range(min(self._max, known - 1), self._min - 1, -1):
            if first := newest(text, n):
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


def newest(text: bytes, n: int) -> int:
    """text: int32 tokens. The newest place before its end that its last n tokens lead to, too; 0 = none."""
    tail = text[-TOKEN * n :]
    at = text.rfind(tail, 0, len(text) - TOKEN)
    while at % TOKEN:  # −1 is found here, too
        if at < 0:
            return 0
        at = text.rfind(tail, 0, at + len(tail) - 1)
    return at // TOKEN + n
