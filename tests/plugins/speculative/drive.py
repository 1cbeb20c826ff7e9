"""A proposer driven without a scheduler: the rows' true continuations are known, and what was guessed rightly is kept,
with the token behind it, as a verify pass does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.native.speculation.proposer import History, Proposer
from engines.native.speculation.tree import Tree


def history_of(rows: int, length: int) -> History:
    return History(np.zeros((rows, length), np.int32), np.zeros(rows, np.int32))


def begin(proposer: Proposer, history: History, row: int, tokens: Sequence[int], salt: str = "") -> None:
    history.token_ids[row] = 0
    history.token_ids[row, : len(tokens)] = tokens
    history.known[row] = len(tokens)
    proposer.begin(row, salt, len(tokens))
    meanwhile(proposer)


def meanwhile(proposer: Proposer) -> None:
    """A pass is on its way."""
    getattr(proposer, "meanwhile", lambda: None)()


def propose(proposer: Proposer, rows: Sequence[int], limit: int | Sequence[int]) -> list[Tree]:
    asked = np.array(rows, np.int32)
    return list(proposer.propose(asked, np.broadcast_to(np.array(limit, np.int32), asked.shape).copy()))


def grow(proposer: Proposer, history: History, row: int, tokens: Sequence[int]) -> None:
    known = int(history.known[row])
    history.token_ids[row, known : known + len(tokens)] = tokens
    history.known[row] += len(tokens)
    proposer.observe(np.array([row], np.int32), np.array([known], np.int32))


def held(tree: Tree, follows: Sequence[int]) -> int:
    """How many nodes of the longest path that begins `follows` hold."""
    node, depth = 0, 0
    while depth < len(follows):
        children = [j + 1 for j, parent in enumerate(tree.parents.tolist()) if parent == node]
        fitting = [child for child in children if tree.tokens[child - 1] == follows[depth]]
        if not fitting:
            break
        node, depth = fitting[0], depth + 1
    return depth


def verify(proposer: Proposer, history: History, says: dict[int, list[int]], limit: int) -> dict[int, tuple[int, int]]:
    """One round for the rows of `says`, each with all that it says, prompt and output: (guessed, held) of each."""
    rows = [row for row in says if history.known[row] < len(says[row])]
    found: dict[int, tuple[int, int]] = {}
    if not rows:
        return found
    for row, tree in zip(rows, propose(proposer, rows, limit), strict=True):
        follows = says[row][int(history.known[row]) :]
        kept = held(tree, follows)
        found[row] = (len(tree), kept)
        grow(proposer, history, row, follows[: kept + 1])
    meanwhile(proposer)
    return found
