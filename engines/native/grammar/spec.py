"""What a request carries of its grammar. Plain values: they travel to the core as they are."""

from __future__ import annotations

from dataclasses import dataclass

INVALID_GRAMMAR = "invalid_grammar"
"""Code of an ending that the request's own grammar has caused, however late that showed."""


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
    think: the model may think first. field: what the request calls it, for messages."""

    source: str
    think: Think | None = None
    field: str = ""
