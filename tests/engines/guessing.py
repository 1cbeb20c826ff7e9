"""A proposer for the fake model, which knows what that will say, and a budget to which every guess is worth a try."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np

from engines.native.speculation.budget import StepCosts
from engines.native.speculation.proposer import History
from engines.native.speculation.speculator import Speculator
from engines.native.speculation.tree import NOTHING, Int32, Tree
from tests.engines.fake_runner import VOCAB, continuation


class Guesser:
    """Trees of any form; a node is right with probability `right` if its parent is. It also checks that it is told of
    every token, once and in order."""

    def __init__(self, history: History, right: float, seed: int = 1, forks: bool = True) -> None:
        self._history, self._right, self._forks = history, right, forks
        self._random = random.Random(seed)
        self.told: dict[int, list[int]] = {}

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        assert row not in self.told, "the row has not been left"
        self.told[row] = self._history.token_ids[row, : self._history.known[row]].tolist()

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        return [self._tree(row, most) for row, most in zip(rows.tolist(), limit.tolist(), strict=True)]

    def _tree(self, row: int, most: int) -> Tree:
        assert self.told[row] == self._history.token_ids[row, : self._history.known[row]].tolist(), "untold"
        count = min(most, self._random.randint(0, 8))
        if not count:
            return NOTHING
        right = continuation(self.told[row], count)
        depth, good = [0], {0}
        tokens: list[int] = []
        parents: list[int] = []
        for node in range(1, count + 1):
            parent = self._random.randrange(node) if self._forks and self._random.random() < 0.4 else node - 1
            holds = parent in good and self._random.random() < self._right
            tokens.append(right[depth[parent]] if holds else self._random.randrange(VOCAB))
            parents.append(parent)
            depth.append(depth[parent] + 1)
            if parent in good and tokens[-1] == right[depth[parent]]:
                good.add(node)
        sure = np.full(count, 0.9, np.float32)
        return Tree(np.array(tokens, np.int32), np.array(parents, np.int32), sure, np.zeros(count, np.int32))

    def observe(self, rows: Int32, since: Int32) -> None:
        for row, first in zip(rows.tolist(), since.tolist(), strict=True):
            assert first == len(self.told[row]), "tokens were skipped or told twice"
            self.told[row] += self._history.token_ids[row, first : self._history.known[row]].tolist()

    def end(self, row: int) -> None:
        del self.told[row]

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is kept."""


FREE = [(1, 1.0), (4096, 1.001)]
"""A pass takes the same time whatever it carries."""


def speculator(right: float, *, forks: bool = True) -> Callable[[History], Speculator]:
    def make(history: History) -> Speculator:
        guesser = Guesser(history, right, forks=forks)
        ticks = map(float, itertools.count(1))
        costs = StepCosts(FREE)
        return Speculator({"guesser": guesser}, history, costs, padded=False, trees=forks, clock=lambda: next(ticks))

    return make
