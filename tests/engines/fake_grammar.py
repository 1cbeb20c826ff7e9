"""Grammars without a compiler, for properties of the scheduler: one that allows all and only counts the tokens that
it saw. Its mask says so, and FakeRunner compares: a row that was planned before its last token was known, or that was
followed twice or never, is found."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import numpy as np

from engines.native.request import Request
from engines.native.speculation.tree import Tree


class CountingMatcher:
    def __init__(self) -> None:
        self.seen = 0
        self.complete, self.error, self.code = False, "", ""

    @property
    def bits(self) -> np.ndarray:
        return np.array([self.seen], np.int32)


class CountingConstraints:
    """Compiling takes until the second time that it is asked."""

    def __init__(self) -> None:
        self._compiling: dict[int, tuple[Request, int]] = {}

    def begin(self, request: Request) -> None:
        self._compiling[request.id] = (request, 2)

    def compiling(self, alive: Container[int]) -> int:
        return sum(number in alive for number in self._compiling)

    def begun(self, now: float) -> list[tuple[Request, str, str]]:
        done = []
        for number, (request, turns) in list(self._compiling.items()):
            if request.finish is not None:
                del self._compiling[number]
            elif turns > 1:
                self._compiling[number] = (request, turns - 1)
            else:
                del self._compiling[number]
                request.matcher = CountingMatcher()  # type: ignore[assignment]
                done.append((request, "", ""))
        return done

    def followed(self, matcher: CountingMatcher, tree: Tree) -> tuple[Tree, np.ndarray]:
        seen = matcher.seen + np.concatenate([[0], tree.depths()])
        return tree, seen[:, None].astype(np.int32)

    def follow(self, matchers: Sequence[CountingMatcher], tokens: Iterable[int]) -> None:
        for matcher, _ in zip(matchers, tokens, strict=True):
            matcher.seen += 1
