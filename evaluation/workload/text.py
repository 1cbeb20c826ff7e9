"""Real words to a length in tokens. Runs of ids are no text: their merges, drafts and experts are not those of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from evaluation.workload.item import Turn
from evaluation.workload.tokens import Tokenizer

PROSE = Path(__file__).with_name("prose.json")
FILLERS = ("a", "I", "so", "the")  # short words, nearly everywhere one token each
TRIES = 12


@cache
def prose() -> list[str]:
    """The words of a bundled text in the public domain."""
    return str(msgspec.json.decode(PROSE.read_bytes())["text"]).split()


class Words:
    """Endless: runs of 6 to 14 words from random places, so that two streams hardly ever share a beginning."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._words: list[str] = []

    def first(self, count: int) -> str:
        """Always the same words for a count, whatever was asked for before."""
        source = prose()
        while len(self._words) < count:
            place = int(self._random.integers(len(source) - 14))
            self._words += source[place : place + int(self._random.integers(6, 15))]
        return " ".join(self._words[:count])


class Fitter:
    """Makes prompts of a length; learns on the way how many tokens a word has."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens_per_word = 1.35

    async def fit(
        self, target: int, words: Words, turn_of: Callable[[str], Turn], known: int = 0
    ) -> tuple[Turn, list[int]]:
        """The turn whose request has `target` tokens, and its ids. Where words can't meet it, the nearest found.

        known: about so many tokens are in the turn besides the words.
        """
        few, many = 0, None  # words that make less, words that make more than the target
        count = max(1, round((target - known) / self._tokens_per_word))
        best: tuple[int, Turn, list[int]] | None = None
        for _ in range(TRIES):
            turn = turn_of(words.first(count))
            ids = await self._tokenizer.ids(turn)
            gap = target - len(ids)
            if best is None or abs(gap) < best[0]:
                best = (abs(gap), turn, ids)
            if gap == 0:
                if count >= 32:
                    self._tokens_per_word += 0.1 * ((target - known) / count - self._tokens_per_word)
                break
            if gap > 0:
                few = max(few, count)
            else:
                many = count if many is None else min(many, count)
            if many is not None and many - few <= 1:
                if few and (filled := await self._fill(target, words.first(few), turn_of)) is not None:
                    return filled
                break
            step = round(gap / self._tokens_per_word) or (1 if gap > 0 else -1)
            count = max(count + step, few + 1)
            if many is not None:
                count = min(count, many - 1)
        assert best is not None
        return best[1], best[2]

    async def _fill(self, target: int, text: str, turn_of: Callable[[str], Turn]) -> tuple[Turn, list[int]] | None:
        """The last tokens by short words, where a whole word has too many."""
        for filler in FILLERS:
            filled = text
            for _ in range(TRIES):
                filled += " " + filler
                turn = turn_of(filled)
                ids = await self._tokenizer.ids(turn)
                if len(ids) == target:
                    return turn, ids
                if len(ids) > target:
                    break
        return None
