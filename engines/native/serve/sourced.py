"""Who guessed which piece of an answer's text: from the source of each token to pieces of what a client gets.

On its way text is held back (half a character, what may be a stop string or a tag) and some is left out (tags, calls),
but its order never changes: what comes out is looked for in what went in. Half a character counts to the token that
completes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Piece = tuple[str, str | None]
"""(text, the proposer that guessed it; None: it was drawn plainly)."""


class Sourced:
    """Pieces that went in and have not come out."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def push(self, text: str, source: str | None) -> None:
        if text:
            self._pieces.append((text, source))

    def take(self, text: str) -> list[Piece]:
        """`text` in pieces, whose texts joined are `text`. What stood before it never comes."""
        if not text:
            return []
        waiting = "".join(piece for piece, _ in self._pieces)
        at = waiting.find(text)
        if at < 0:  # it was written here, not by the model
            return [(text, None)]
        self.keep(len(waiting) - at)
        taken: list[Piece] = []
        left = len(text)
        while left:
            piece, source = self._pieces[0]
            taken.append((piece[:left], source))
            if len(piece) > left:
                self._pieces[0] = (piece[left:], source)
            else:
                del self._pieces[0]
            left -= min(left, len(piece))
        return merged(taken)

    def keep(self, count: int) -> None:
        """Of what waits, the last `count` characters."""
        surplus = sum(len(piece) for piece, _ in self._pieces) - count
        while surplus > 0:
            piece, source = self._pieces[0]
            if len(piece) <= surplus:
                del self._pieces[0]
            else:
                self._pieces[0] = (piece[surplus:], source)
            surplus -= len(piece)


class AnswerSources:
    """Of one answer, from its tokens to `Delta.pieces` and `Delta.reasoning_pieces`. names: of the proposers, by their
    numbers."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._shown, self._answer = Sourced(), Sourced()
        self._reasoning: list[Piece] = []

    def push(self, text: str, source: int, reasoning: str, answer: str, held: int) -> None:
        """A token's text, what of it and of earlier ones is reasoning and what answer, and how many characters are held
        back for which of the two."""
        self._shown.push(text, self.name(source))
        self._reasoning += self._shown.take(reasoning)
        for piece in self._shown.take(answer):
            self._answer.push(*piece)
        self._shown.keep(held)

    def take(self, text: str) -> tuple[list[Piece], list[Piece]]:
        """(of the answer's `text`, of all reasoning since the last call)."""
        reasoning, self._reasoning = self._reasoning, []
        return self._answer.take(text), merged(reasoning)

    def name(self, source: int) -> str | None:
        if source < 0:
            return None
        return self._names[source] if source < len(self._names) else f"proposer {source}"


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of one source are one."""
    found: list[Piece] = []
    for text, source in pieces:
        if found and found[-1][1] == source:
            found[-1] = (found[-1][0] + text, source)
        elif text:
            found.append((text, source))
    return found


def pieces_body(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    """`pieces` and `reasoning_pieces` of a choice's field `tursiops`."""
    return [{"text": text, "source": source} for text, source in pieces]
