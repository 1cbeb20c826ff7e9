"""A proposer that knows what will be said, and is wrong as often as it is asked to be: acceptance by programme."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engines.native.speculation.budget import StepCosts
from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import NOTHING, Int32, Tree

Prompt = tuple[int, ...]


class FreeGuesses(StepCosts):
    """More tokens of a pass cost next to nothing, and what passes take changes nothing: every guess is tried."""

    def __init__(self) -> None:
        super().__init__([(1, 1.0), (4096, 1.0001)])

    def saw_plain(self, rows: int, seconds: float) -> None:
        """Nothing."""

    def saw_verify(self, rows: int, tokens: int, seconds: float) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Script:
    """answers: what each prompt is followed by. drafts: guesses along the path that is said; each holds with `hit` if
    the one before it does. fork: how often a wrong guess stands beside a right one, before it."""

    answers: Mapping[Prompt, Sequence[int]]
    drafts: int
    hit: float
    fork: float = 0.0
    seed: int = 0


Trees = dict[Prompt, dict[int, Tree]]
"""Of each prompt, by how many tokens of its answer are said."""


class Replay:
    def __init__(self, settings: ProposerSettings, script: Script, made: Trees) -> None:
        """made: trees that other engines have used, so that a second call measures no work of this benchmark's own."""
        self._history, self._vocab, self._script, self._made = settings.history, settings.vocab, script, made
        self._begun: dict[int, tuple[Prompt, int, dict[int, Tree]]] = {}

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        prompt = tuple(self._history.token_ids[row, :prompt_len].tolist())
        self._begun[row] = prompt, prompt_len, self._made.setdefault(prompt, {})

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        return [self._row(row, most) for row, most in zip(rows.tolist(), limit.tolist(), strict=True)]

    def _row(self, row: int, most: int) -> Tree:
        prompt, length, trees = self._begun[row]
        done = int(self._history.known[row]) - length
        if done not in trees:
            trees[done] = self._tree(prompt, done)
        tree = trees[done]
        return tree if len(tree) <= most else tree.first(most)

    def _tree(self, prompt: Prompt, done: int) -> Tree:
        script = self._script
        chooser = random.Random(hash((script.seed, prompt[-1], len(prompt), done)))
        tokens: list[int] = []
        parents: list[int] = []
        at = 0
        for token in script.answers[prompt][done : done + script.drafts]:
            if chooser.random() < script.fork:
                tokens.append((token + 1) % self._vocab)
                parents.append(at)
            right = chooser.random() < script.hit
            tokens.append(token if right else (token + 2) % self._vocab)
            parents.append(at)
            at = len(tokens)
        if not tokens:
            return NOTHING
        count = len(tokens)
        ids, above = np.array(tokens, np.int32), np.array(parents, np.int32)
        return Tree(ids, above, np.full(count, script.hit, np.float32), np.zeros(count, np.int32))

    def observe(self, rows: Int32, since: Int32) -> None:
        """The history has grown by itself."""

    def end(self, row: int) -> None:
        self._begun.pop(row, None)

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is kept."""


def replaying(script: Script) -> dict[str, Callable[[ProposerSettings], Replay]]:
    """For `Offline`, of any number of engines."""
    made: Trees = {}
    return {"replay": lambda settings: Replay(settings, script, made)}
