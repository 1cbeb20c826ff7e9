"""Server-sent events as bytes arrive, and what OpenAI's streams say in them.

A stream may be cut anywhere, in the middle of a character too: lines end at bytes that no longer character holds, so
only whole events are decoded (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

FIELDS = (b"event", b"id", b"retry")  # besides data: allowed, not used
LONGEST_EVENT = 16 * 2**20  # bytes
DONE = b"[DONE]"


class SseError(ValueError):
    """The bytes are no server-sent events, or an event is none of OpenAI's. `code` begins the record's error."""

    code = "invalid_sse"


class SseParser:
    """`feed` bytes, take the `data` of the events that they complete. One stream each."""

    __slots__ = ("_begun", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Raises SseError for a line that is no field, and an event over 16 MiB."""
        data = self._rest + piece if self._rest else piece
        if not self._begun:
            if b"\xef\xbb\xbf".startswith(data):  # a byte order mark, perhaps not all of it yet
                self._rest = data
                return []
            self._begun = True
            data = data.removeprefix(b"\xef\xbb\xbf")
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # its line feed may still come
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n\n")
        if end < 0:
            self._keep(data + held)
            return []
        self._keep(data[end + 2 :] + held)
        events = []
        for block in data[:end].split(b"\n\n"):
            if block.startswith(b"data: ") and b"\n" not in block:  # nearly all
                events.append(block[6:])
            elif (event := _event(block)) is not None:
                events.append(event)
        return events

    @property
    def pending(self) -> bool:
        """Whether an event has begun that was not ended."""
        return bool(self._rest.strip())

    def _keep(self, rest: bytes) -> None:
        if len(rest) > LONGEST_EVENT:
            raise SseError(f"an event is longer than {LONGEST_EVENT} bytes")
        self._rest = rest


def _event(block: bytes) -> bytes | None:
    """`data` of the lines between two empty ones; None where they hold none (comments, pings)."""
    lines = []
    for line in block.split(b"\n"):
        if not line or line.startswith(b":"):
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        elif name not in FIELDS:
            raise SseError(f"a line is no field of an event: {_shown(line)}")
    return b"\n".join(lines) if lines else None


class _CachedTokens(Struct):
    cached_tokens: int | None = None


class _Guesses(Struct):
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None
    completion_tokens_details: _Guesses | None = None

    @property
    def cached_tokens(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None

    @property
    def accepted_tokens(self) -> int | None:
        return self.completion_tokens_details.accepted_prediction_tokens if self.completion_tokens_details else None

    @property
    def rejected_tokens(self) -> int | None:
        return self.completion_tokens_details.rejected_prediction_tokens if self.completion_tokens_details else None


class _Function(Struct):
    arguments: str | None = None


class _ToolCall(Struct):
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    def generated(self) -> str:
        """Text that tokens were spent on: content, reasoning (told under either name), arguments of tool calls."""
        delta = self.delta
        if delta is None:
            return self.text or ""
        text = (delta.reasoning_content or delta.reasoning or "") + (delta.content or "")
        for call in delta.tool_calls or ():
            if call.function is not None and call.function.arguments:
                text += call.function.arguments
        return text

    def content(self) -> str:
        """What a following turn repeats: reasoning is not sent back."""
        return (self.delta.content if self.delta is not None else self.text) or ""


class Chunk(Struct):
    """An event of a chat or completion stream; fields that measure nothing are skipped."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None

    def failure(self) -> str | None:
        """The message of an error inside the stream."""
        if self.error is None:
            return None
        return str(self.error.get("message", self.error) if isinstance(self.error, dict) else self.error)[:500]


_DECODER = msgspec.json.Decoder(Chunk)


def read_chunk(event: bytes) -> Chunk:
    """Raises SseError naming what is wrong."""
    try:
        return _DECODER.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SseError(f"an event is no chunk of a stream ({error}): {_shown(event)}") from error


def _shown(data: bytes) -> str:
    return repr(data[:80].decode("utf-8", "replace")) + ("…" if len(data) > 80 else "")
