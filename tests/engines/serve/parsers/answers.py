"""Reads answers in tests: ids are random, so they are made equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from engines.native.serve.parsers.pieces import CallBegin, Content, Piece, joined, message
from engines.native.serve.parsers.registry import TOOL_PARSERS

NAMES = frozenset({"f", "get_weather", "math.factorial"})


def parsed(parser: str, chunks: list[str]) -> list[Piece]:
    """All pieces of an answer that came in these chunks, neighbours joined."""
    reading = TOOL_PARSERS[parser](NAMES)
    pieces: list[Piece] = []
    for chunk in chunks:
        pieces += reading.push(chunk)
    pieces += reading.finish()
    return [replace(piece, id="") if isinstance(piece, CallBegin) else piece for piece in joined(pieces)]


def calls(parser: str, text: str) -> list[tuple[str, str]]:
    """(name, arguments) of each call."""
    return [(call.name, call.arguments) for call in message(parsed(parser, [text])).calls]


def content(parser: str, text: str) -> str | None:
    return message(parsed(parser, [text])).content


def shown_at_once(parser: str, text: str) -> str:
    """Content that is handed out before the answer is over."""
    return "".join(piece.text for piece in TOOL_PARSERS[parser](NAMES).push(text) if isinstance(piece, Content))


def cut(text: str, places: list[int]) -> Iterator[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    for start, end in pairwise(edges):
        yield text[start:end]


CUTS = st.lists(st.integers(0, 1 << 16), max_size=12)


def texts(parts: list[str]) -> st.SearchStrategy[str]:
    """Texts put together of what matters to a parser, whole and broken, in any order."""
    words = st.sampled_from(parts) | st.text(alphabet="<[{(\"'\\}]>` \n,:;atou", max_size=6)
    return st.lists(words, max_size=10).map("".join)
