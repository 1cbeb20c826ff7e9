"""Token ids to text, a token at a time, never in half a character.

A tokenizer's decoder is turned into a table of bytes per token once, at start. A stream then is an incremental UTF-8
decoder: constant work per token, bytes of an unfinished character stay inside, and what can never become a character
comes out as U+FFFD exactly where decoding the whole would put it. Decoders that can't be written as such a table
(WordPiece, say) fall back on decoding a short window again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from encodings import utf_8
from functools import cached_property
from typing import Any, Protocol

from tokenizers import Tokenizer


class TextStream(Protocol):
    def push(self, token: int) -> str:
        """Text that this token completes."""
        ...

    def flush(self) -> str:
        """What is left of an unfinished character, as U+FFFD."""
        ...


class Detokenizer:
    """Bytes of every token, for one tokenizer. Special tokens have none. Lives as long as the process."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self.pieces, self.strip_first = _byte_table(tokenizer, vocab_size)
        self._shown: dict[int, str] = {}

    def showing(self, token_ids: Iterable[int]) -> Detokenizer:
        """One that writes these tokens by their name, though they be special: for who looks for tags in the text."""
        shown = {token: self._tokenizer.id_to_token(token) for token in token_ids}
        other = copy.copy(self)
        other._shown = {**self._shown, **{token: name for token, name in shown.items() if name}}
        if self.pieces is not None:
            other.pieces = list(self.pieces)
            for token, name in other._shown.items():
                other.pieces[token] = name.encode()
        return other

    @cached_property
    def unabridged(self) -> Detokenizer:
        """One that writes every special token by its name."""
        added = self._tokenizer.get_added_tokens_decoder()
        return self.showing(token for token, about in added.items() if about.special and token < self._vocab_size)

    def stream(self) -> TextStream:
        if self.pieces is None:
            return _WindowStream(self._tokenizer, self._shown)
        return _ByteStream(self.pieces, self.strip_first)

    def text(self, token_ids: list[int]) -> str:
        stream = self.stream()
        return "".join([stream.push(token) for token in token_ids]) + stream.flush()

    def token_bytes(self, token: int) -> bytes:
        """For logprobs. Special tokens by their name."""
        if self.pieces is not None and 0 <= token < len(self.pieces) and self.pieces[token]:
            return self.pieces[token]
        return (self._tokenizer.id_to_token(token) or "").encode(errors="replace")


class _ByteStream:
    def __init__(self, pieces: list[bytes], strip_first: bool) -> None:
        self._pieces = pieces
        self._decoder = utf_8.IncrementalDecoder("replace")
        self._strip = strip_first

    def push(self, token: int) -> str:
        piece = self._pieces[token] if token < len(self._pieces) else b""
        if not self._decoder.buffer:  # nearly always: nothing of a character waits, and the token is whole ones
            try:
                text = piece.decode()
            except UnicodeDecodeError:
                text = self._decoder.decode(piece)
        else:
            text = self._decoder.decode(piece)
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowStream:
    """Decodes from a token that is known to begin cleanly, and sends what is new."""

    def __init__(self, tokenizer: Tokenizer, shown: dict[int, str]) -> None:
        self._tokenizer, self._shown = tokenizer, shown
        self._ids: list[int] = []
        self._start, self._sent = 0, ""

    def push(self, token: int) -> str:
        if token in self._shown:
            text = self.flush()
            self._ids, self._start, self._sent = [], 0, ""
            return text + self._shown[token]
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids[self._start :])
        if text.endswith("\ufffd") and len(self._ids) - self._start < 16:
            return ""
        new = text[len(self._sent) :]
        # The next window begins at this token, so that what joins two tokens is seen.
        self._start = len(self._ids) - 1
        self._sent = self._tokenizer.decode(self._ids[self._start :])
        return new

    def flush(self) -> str:
        return self._tokenizer.decode(self._ids[self._start :])[len(self._sent) :]


def _byte_table(tokenizer: Tokenizer, vocab_size: int) -> tuple[list[bytes] | None, bool]:
    """(bytes per token id, whether the first blank of a text is dropped), or None for another kind of decoder."""
    steps = _decoder_steps(tokenizer)
    kinds = [step["type"] for step in steps]
    added = tokenizer.get_added_tokens_decoder()
    strip = False
    if kinds == ["ByteLevel"]:
        alphabet = _byte_alphabet()
    elif kinds and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        alphabet = None
        strip = any(step["type"] == "Strip" and step.get("start") for step in steps)
    else:
        return None, False
    table = [b""] * vocab_size
    for piece, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if not 0 <= token_id < vocab_size:
            continue
        token = added.get(token_id)
        if token is not None:
            table[token_id] = b"" if token.special else token.content.encode()
        elif alphabet is not None:
            table[token_id] = b"".join(alphabet.get(character, character.encode()) for character in piece)
        else:
            table[token_id] = _fallback_bytes(piece, steps)
    return table, strip


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    if tokenizer.decoder is None:
        return []
    state: dict[str, Any] = json.loads(tokenizer.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's printable stand-ins for bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    named = {chr(byte): bytes((byte,)) for byte in plain}
    return named | {chr(256 + index): bytes((byte,)) for index, byte in enumerate(rest)}


def _fallback_bytes(piece: str, steps: list[dict[str, Any]]) -> bytes:
    """A SentencePiece token: <0xNN> is a byte; replacements as the decoder says (▁ → blank)."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes((int(piece[3:5], 16),))
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            piece = piece.replace(step["pattern"]["String"], step["content"])
    return piece.encode()
