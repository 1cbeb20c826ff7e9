"""What the word of each source is worth: how much of what it promised was kept, in guesses that were tried, and in some
that were not, which are compared with what is said later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from engines.native.speculation.proposer import History
from engines.native.speculation.tree import Tree, held

FADE = 0.05
"""Weight of the newest pass in what a source's promises are worth."""
RATE = (0.05, 1.5)
"""Bounds of that factor."""
SUREST = 0.995
WATCHED = 6
"""Tokens that must have followed before a guess that was not tried is judged."""
SHADOWS = 8
"""Such guesses at most, one for a row."""


class Worth:
    """factors: of each source, on the confidence of its guesses."""

    def __init__(self, sources: int, history: History) -> None:
        self.factors = [1.0] * sources
        self._history = history
        self._shadows: dict[int, tuple[int, Tree, list[float]]] = {}  # row → (tokens known then, guessed, survival)

    def survival(self, tree: Tree) -> list[float]:
        """Of each node, the probability that it and all before it hold, by what its source's word is worth."""
        parents, sure = tree.parents.tolist(), tree.confidence.tolist()
        if len(self.factors) == 1:
            worth = self.factors[0]
            believed = [own * worth for own in sure]
            if max(believed) > SUREST:
                believed = [min(own, SUREST) for own in believed]
        else:
            believed = [
                min(own * self.factors[source], SUREST) for own, source in zip(sure, tree.source.tolist(), strict=True)
            ]
        if parents[-1] == len(parents) - 1 and parents == list(range(len(parents))):
            return list(accumulate(believed, mul))
        reached = [1.0]
        for parent, own in zip(parents, believed, strict=True):
            reached.append(reached[parent] * own)
        return reached[1:]

    def promised(self, trees: Iterable[Tree], survival: Iterable[list[float]]) -> list[float]:
        """Tokens that each source promises of these trees."""
        if len(self.factors) == 1:
            return [sum(map(sum, survival))]
        found = [0.0] * len(self.factors)
        for tree, own in zip(trees, survival, strict=True):
            for source, share in zip(tree.source.tolist(), own, strict=True):
                found[source] += share
        return found

    def learn(self, promised: Sequence[float], kept: Sequence[int]) -> None:
        """Of what each source promised, with its worth at that time, so many tokens were kept."""
        for source, (wanted, found) in enumerate(zip(promised, kept, strict=True)):
            if wanted > 0:
                off = min(max((found - wanted) / (wanted + 1), -1.0), 1.0)
                worth = self.factors[source] * (1 + FADE * off)
                self.factors[source] = min(max(worth, RATE[0]), RATE[1])

    # Guesses that are not tried

    def watch(self, trees: dict[int, Tree], survival: dict[int, list[float]]) -> None:
        """Of rows; those that are watched already are judged first."""
        for row, own in survival.items():
            if len(self._shadows) >= SHADOWS:
                return
            if row not in self._shadows:
                self._shadows[row] = (int(self._history.known[row]), trees[row], own)

    def judge(self) -> None:
        """Compare them with what has followed by now."""
        history = self._history
        for row, (since, tree, survival) in list(self._shadows.items()):
            if int(history.known[row]) < since + WATCHED:
                continue
            del self._shadows[row]
            path = held(tree, history.token_ids[row, since : since + WATCHED].tolist())
            promised, kept = [0.0] * len(self.factors), [0] * len(self.factors)
            depths, whose = tree.depths().tolist(), tree.source.tolist()
            for depth, source, share in zip(depths, whose, survival, strict=True):
                promised[source] += share if depth <= WATCHED else 0.0
            for node in path:
                kept[whose[node]] += 1
            self.learn(promised, kept)

    def forget(self, row: int) -> None:
        """Another request will have it."""
        self._shadows.pop(row, None)
