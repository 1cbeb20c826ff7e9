"""What must hold for any bytes, as functions of bytes: `test_bytes.py` draws them with hypothesis in every run of the
tests, `fuzz_bytes.py` lets atheris search for them by coverage. The first bytes choose how the rest is taken."""

from __future__ import annotations

import codecs
import json
import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from tursiops.gateway.dialects import ANTHROPIC, OPENAI, RESPONSES
from tursiops.gateway.events import EventScanner, EventTooLarge, data_of, split

from engines.native.grammar import sources
from engines.native.grammar.matcher import Matcher, fill
from engines.native.grammar.spec import BadGrammar
from engines.native.serve.completeness import SCANNERS
from engines.native.serve.endings import Endings, TextEnd
from engines.native.serve.parsers.pieces import CallBegin, joined
from engines.native.serve.parsers.reasoning import ReasoningSplitter
from engines.native.serve.parsers.registry import REASONING_TAGS, TOOL_PARSERS
from engines.native.serve.sse import EventStream, SlowReaders
from tests.engines.grammar.tokens import VOCABULARY, attempt
from tests.engines.serve.parsers.answers import NAMES

LIMIT = 4096
DIALECTS = (OPENAI, RESPONSES, ANTHROPIC)


def cut(data: Any, seed: int) -> list[Any]:
    """In pieces, many of them small. Works for bytes and texts."""
    chosen, pieces, at = random.Random(seed), [], 0
    while at < len(data):
        end = at + chosen.choice((1, 1, 2, 3, 7, 40, 400))
        pieces.append(data[at:end])
        at = end
    return pieces


# The gateway's side of a stream


def scanned(data: bytes, seed: int, dialect: Any, *, keep: bool) -> tuple[bytes, dict[str, Any]] | None:
    """What the client gets and what is known of it; None for an event that is too long."""
    scanner = EventScanner(dialect, keep_usage=keep, limit=LIMIT)
    try:
        out = b"".join(scanner.feed(piece) for piece in cut(data, seed))
    except EventTooLarge:
        return None
    return out, asdict(scanner.seen)


def gateway_scanner(data: bytes) -> None:
    """No bytes of an engine break the relay; what it doesn't drop goes through as it came, however it was cut; counts
    can be stored."""
    if len(data) < 3:
        return
    dialect, seed, stream = DIALECTS[data[0] % 3], data[1], data[2:]
    kept = scanned(stream, seed, dialect, keep=True)
    if kept is not None:
        out, seen = kept
        assert stream.startswith(out), "bytes were changed"
        end = max(stream.rfind(b"\n\n") + 2, stream.rfind(b"\n\r\n") + 3)
        assert out.rstrip(b"\r\n") == stream[: end if end >= 3 else 0].rstrip(b"\r\n"), "a whole event was held back"
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "events"):
            assert 0 <= seen[name] < 2**31, name
        assert b"".join(split(out)) == out
    dropped = scanned(stream, seed, dialect, keep=False)
    if dropped is not None and kept is not None:
        left = [event for event in split(kept[0]) if data_of(event)]
        for event in split(dropped[0]):
            assert not data_of(event) or event.strip() in [one.strip() for one in left], "an event that never came"
    for read in (dialect.says_nothing, lambda body: dialect.read_whole(body, EventScanner(dialect, keep_usage=True,
                                                                                           limit=1).seen)):  # fmt: skip
        read(data_of(stream))


# The engine's side


def sse_writer(data: bytes) -> None:
    """One event is one event, whatever its text holds: line breaks of any kind, blank lines, field names."""
    text = data.decode("utf-8", "replace")
    stream = EventStream(None, SlowReaders(), named=bool(data[:1] > b"\x80"))  # type: ignore[arg-type] # no request: none is read
    payload = {"type": "response.output_text.delta", "delta": text, text[:20]: text}
    written = stream._event(payload)
    (event,) = split(written)
    assert event == written
    assert json.loads(data_of(event)) == payload
    assert written.count(b"\n\n") == 1
    assert b"\r" not in written


def utf8_stream(data: bytes) -> None:
    """Pieces of bytes as tokens: text comes whole, and is what decoding all at once gives."""
    from engines.native.serve.detokenize import _ByteStream

    if not data:
        return
    pieces = cut(data[1:], data[0])
    for strip in (False, True):
        reading = _ByteStream(pieces, strip)
        shown = [reading.push(token) for token in range(len(pieces))]
        whole = codecs.decode(data[1:], "utf-8", "replace")
        assert "".join(shown) + reading.flush() == (whole.removeprefix(" ") if strip else whole)


def text_endings(data: bytes) -> None:
    """Stop strings, complete sentences and JSON: the text is cut in the same place however it is split."""
    if len(data) < 4:
        return
    parts = data[3:].decode("utf-8", "replace").split("\0")
    text, stops = parts[0], [stop for stop in parts[1:5] if 0 < len(stop) <= 256]
    complete = ["", *SCANNERS][data[0] % (1 + len(SCANNERS))]
    endings = Endings(include_stop=bool(data[1] & 1), complete=complete)

    def shown(pieces: list[str]) -> tuple[str, bool, str | None]:
        end, out = TextEnd(stops, endings), ""
        for piece in pieces:
            said, met = end.push(piece)
            out += said
            if met:
                return out, True, end.met
        return out + end.flush(), False, None

    assert shown(cut(text, data[2])) == shown(list(text)) == shown([text] if text else [])


def answer_parsers(data: bytes) -> None:
    """Reasoning and tool calls: any cutting gives the same pieces."""
    if len(data) < 3:
        return
    text = data[3:].decode("utf-8", "replace")
    tags = list(REASONING_TAGS.values())[data[0] % len(REASONING_TAGS)]
    make = list(TOOL_PARSERS.values())[data[1] % len(TOOL_PARSERS)]

    def read(pieces: list[str]) -> tuple[str, list[Any]]:
        splitter, parser = ReasoningSplitter(tags, bool(data[1] & 128)), make(NAMES)
        thought, found = "", []
        for piece in pieces:
            reasoning, said = splitter.push(piece)
            thought += reasoning
            found += parser.push(said) if said else []
        reasoning, said = splitter.finish()
        found += (parser.push(said) if said else []) + parser.finish()
        same = [CallBegin(one.index, "", one.name) if isinstance(one, CallBegin) else one for one in joined(found)]
        return thought + reasoning, same

    assert read(cut(text, data[2])) == read(list(text)) == read([text])


# Grammars


def _schema(text: str) -> str:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadGrammar(str(error)) from error
    return sources.from_schema(schema)


GRAMMARS: tuple[Callable[[str], str], ...] = (
    _schema,
    sources.from_regex,
    sources.from_grammar,
    lambda text: sources.from_choice(text.split("\0")),
)


def grammars(data: bytes) -> None:
    """Any text as a grammar is refused with a sentence, or can be followed: a mask is never empty before the end, and
    what was taken back comes again."""
    if len(data) < 3:
        return
    make, chosen = GRAMMARS[data[0] % len(GRAMMARS)], random.Random(data[1])
    made, refusal = attempt(make, data[2:].decode("utf-8", "replace"))
    if made is None:
        assert refusal
        return
    matcher = Matcher(made, VOCABULARY, VOCABULARY.ends, None, False)
    fill([matcher], None)
    for _ in range(12):
        if matcher.complete or matcher.error:
            break
        allowed = np.flatnonzero(np.unpackbits(matcher.bits.view(np.uint8), bitorder="little"))
        assert len(allowed), "nothing may follow, and it is not said"
        texts = [token for token in allowed.tolist() if token not in VOCABULARY.ends]
        if not texts:
            break
        before = matcher.bits.copy()
        matcher.advance(chosen.choice(texts))
        assert not matcher.error, f"a token of the mask was refused: {matcher.error}"
        fill([matcher], None)
        if chosen.random() < 0.3:
            matcher.rollback(1)
            fill([matcher], None)
            assert (matcher.bits == before).all(), "what was taken back left something"
            matcher.advance(chosen.choice(texts))
            fill([matcher], None)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (gateway_scanner, sse_writer, utf8_stream, text_endings, answer_parsers, grammars)
}
