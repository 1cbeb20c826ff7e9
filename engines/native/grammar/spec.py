"""What a request carries of its grammar. Plain values: they travel to the core as they are."""

from __future__ import annotations

from dataclasses import dataclass


class BadGrammar(ValueError):
    """A grammar that cannot be used. The message names the part at fault, the reason, and what is supported."""


@dataclass(frozen=True, slots=True)
class Think:
    """Ids of <think> and </think>, where a model has them: the grammar is that of the answer after the thinking."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Grammar:
    """source: in the compiler's own notation, checked at the door (`engines.native.grammar.sources`).
    think: the model may think first."""

    source: str
    think: Think | None = None
