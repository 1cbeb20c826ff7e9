"""Guesses of what follows a row's last token: a tree, so that a fork in the road does not end the guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]

MAX_NODES = 31
"""Of one row: with its last token they fill the 32 bits of an ancestor word."""


@dataclass(slots=True)  # not frozen, which would take twice as long to make: nobody changes one
class Tree:
    """tokens: int32 [k]. parents: int32 [k]; 0 is the row's last token (the root), j > 0 is node j − 1. A parent comes
    before its children, and the most likely chain comes first. confidence: float32 [k], the probability that a node
    holds if its parent does, 0…1. source: int32 [k], which proposer it is from (index in the speculator's list)."""

    tokens: Int32
    parents: Int32
    confidence: Float32
    source: Int32

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def chain(self) -> bool:
        """Each node follows the one before it."""
        return bool((self.parents == np.arange(len(self.parents))).all())

    def trunk(self) -> Tree:
        """Without forks: the chain that comes first."""
        forks = np.flatnonzero(self.parents != np.arange(len(self.parents)))
        return self.first(int(forks[0])) if len(forks) else self

    def survival(self) -> Float32:
        """float32 [k], the probability that a node and all before it on its path hold."""
        reached = np.ones(len(self.tokens) + 1, np.float32)
        for node, parent in enumerate(self.parents.tolist()):
            reached[node + 1] = reached[parent] * self.confidence[node]
        return reached[1:]

    def depths(self) -> Int32:
        """int32 [k]; 1 follows the root."""
        depth = np.zeros(len(self.tokens) + 1, np.int32)
        for node, parent in enumerate(self.parents.tolist()):
            depth[node + 1] = depth[parent] + 1
        return depth[1:]

    def first(self, count: int) -> Tree:
        """The first `count` nodes."""
        return Tree(self.tokens[:count], self.parents[:count], self.confidence[:count], self.source[:count])

    def likeliest(self, survival: list[float], count: int) -> tuple[Tree, list[float]]:
        """At most `count` nodes, those of the greatest survival, which no node has more of than its parent, and
        theirs."""
        if len(survival) <= count:
            return self, survival
        order = sorted(range(len(survival)), key=survival.__getitem__, reverse=True)[:count]
        order.sort()
        own = [survival[node] for node in order]
        if order[-1] == count - 1:
            return self.first(count), own
        place = [0] * (order[-1] + 2)
        for new, node in enumerate(order):
            place[node + 1] = new + 1
        parents = self.parents.tolist()
        index = np.array(order, np.int64)
        moved = np.array([place[parents[node]] for node in order], np.int32)
        return Tree(self.tokens[index], moved, self.confidence[index], self.source[index]), own

    def kept(self, keep: NDArray[np.bool_]) -> Tree:
        """The nodes that are kept, bool [k]; those whose parent is not are lost with it."""
        place = np.zeros(len(self.tokens) + 1, np.int32)
        nodes: list[int] = []
        for node, parent in enumerate(self.parents.tolist()):
            if keep[node] and (parent == 0 or place[parent]):
                nodes.append(node)
                place[node + 1] = len(nodes)
        index = np.array(nodes, np.int64)
        return Tree(self.tokens[index], place[self.parents[index]], self.confidence[index], self.source[index])


def chain(tokens: Int32, confidence: Float32, source: int = 0) -> Tree:
    """tokens int32 [k], one after the other."""
    count = len(tokens)
    return Tree(tokens, np.arange(count, dtype=np.int32), confidence, np.full(count, source, np.int32))


NOTHING = chain(np.zeros(0, np.int32), np.zeros(0, np.float32))
"""No guess."""


def ancestors(parents: Int32) -> NDArray[np.int32]:
    """int32 [k + 1]: of the root and each node, the word whose bit j is set if it may see token j of the pass: itself,
    and its ancestors (0 = the root)."""
    words = [1]
    for node, parent in enumerate(parents.tolist()):
        words.append(words[parent] | 1 << (node + 1))
    return np.array(words, np.uint32).view(np.int32)


def check(trees: Sequence[Tree], limit: list[int], vocab: int) -> None:
    """Raises ValueError for guesses that no engine could try."""
    if len(trees) != len(limit):
        raise ValueError(f"{len(trees)} trees for {len(limit)} rows")
    words = [tree.tokens for tree in trees]
    for own, most in zip(words, limit, strict=True):
        if len(own) > most:
            raise ValueError(f"a tree of {len(own)} nodes where {most} are of use")
    every = np.concatenate(words) if words else NOTHING.tokens
    if len(every) and (int(every.min()) < 0 or int(every.max()) >= vocab):
        raise ValueError(f"tokens {every.min()} … {every.max()} of a vocabulary of {vocab}")


def held(tree: Tree, tokens: list[int]) -> list[int]:
    """The nodes that `tokens`, which were said, follow from the root on."""
    path: list[int] = []
    words, parents, at = tree.tokens.tolist(), tree.parents.tolist(), 0
    for token in tokens:
        for node in range(at, len(words)):  # children come after their parent
            if parents[node] == at and words[node] == token:
                path.append(node)
                at = node + 1
                break
        else:
            break
    return path


def merged(one: Tree, other: Tree, most: int) -> Tree:
    """Both; a node that is in both keeps the greater confidence. At most `most` nodes, the surest."""
    if not len(one) or not len(other):
        tree = one if len(one) else other
    else:
        tokens, parents = one.tokens.tolist(), one.parents.tolist()
        sure, source = one.confidence.tolist(), one.source.tolist()
        place = {(parent, token): node + 1 for node, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
        moved = [0]
        for node in range(len(other)):
            key = (moved[int(other.parents[node])], int(other.tokens[node]))
            if key not in place:
                tokens.append(key[1])
                parents.append(key[0])
                sure.append(float(other.confidence[node]))
                source.append(int(other.source[node]))
                place[key] = len(tokens)
            elif other.confidence[node] > sure[place[key] - 1]:
                sure[place[key] - 1] = float(other.confidence[node])
                source[place[key] - 1] = int(other.source[node])
            moved.append(place[key])
        tree = Tree(
            np.array(tokens, np.int32), np.array(parents, np.int32),
            np.array(sure, np.float32), np.array(source, np.int32),
        )  # fmt: skip
    if len(tree) <= most:
        return tree
    keep = np.zeros(len(tree), np.bool_)
    keep[np.argsort(-tree.survival(), kind="stable")[:most]] = True
    return tree.kept(keep)
