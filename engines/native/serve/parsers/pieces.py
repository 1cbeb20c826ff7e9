"""The parts that an answer's text is made of, in the order in which a client gets them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """index: of the call in its answer, from 0. Arguments follow, then the end; calls are never interleaved."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A fragment of the call's arguments, as the model wrote them: JSON, unless the model failed at it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Comes for a call that was cut off, too (finish_reason says so)."""

    index: int


Piece = Content | Reasoning | CallBegin | CallArguments | CallEnd


class ToolParser(Protocol):
    """Reads one answer. The pieces depend on the text alone, not on how it was cut up for `push`.

    Only what may still become a tag or a call is held back. Whatever turns out to be no call comes out as content,
    character for character; white space beside a call is no content.
    """

    def push(self, text: str) -> list[Piece]: ...

    def finish(self) -> list[Piece]:
        """The answer is over. Nothing may be pushed afterwards."""
        ...


@dataclass(slots=True)
class Call:
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Message:
    """An answer as a whole. content: None where there is none beside calls or reasoning; reasoning likewise."""

    content: str | None = None
    reasoning: str | None = None
    calls: list[Call] = field(default_factory=list)


def message(pieces: Iterable[Piece]) -> Message:
    whole = Message()
    for piece in pieces:
        match piece:
            case Content(text):
                whole.content = (whole.content or "") + text
            case Reasoning(text):
                whole.reasoning = (whole.reasoning or "") + text
            case CallBegin(_, call_id, name):
                whole.calls.append(Call(call_id, name))
            case CallArguments(index, text):
                whole.calls[index].arguments += text
    if whole.content is None and whole.reasoning is None and not whole.calls:
        whole.content = ""
    return whole


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of one kind made one: what tells two answers apart, however they were streamed."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        match last, piece:
            case Content(before), Content(text):
                result[-1] = Content(before + text)
            case Reasoning(before), Reasoning(text):
                result[-1] = Reasoning(before + text)
            case CallArguments(index, before), CallArguments(same, text) if index == same:
                result[-1] = CallArguments(index, before + text)
            case _:
                result.append(piece)
    return result
