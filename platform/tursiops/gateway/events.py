"""Server-sent events as bytes: whole events are passed on as they came, only the few that matter are looked into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
PING = b": waiting\n\n"


class EventTooLarge(Exception):
    """An event of the engine is longer than the gateway holds."""


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = 0


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details else 0


class Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: msgspec.Raw | None = None


class Choice(msgspec.Struct, frozen=True):
    finish_reason: str | None = None
    delta: Delta | None = None


class Chunk(msgspec.Struct, frozen=True):
    """The part of a chunk, or of a whole answer, that the gateway reads."""

    choices: tuple[Choice, ...] | None = None
    usage: Usage | None = None
    error: dict[str, Any] | str | None = None


_decoder = msgspec.json.Decoder(Chunk)


def decode(data: bytes) -> Chunk | None:
    """None for anything that is not the JSON of an answer."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def data_of(event: bytes) -> bytes:
    """The data lines of one event, joined as the standard says."""
    lines = [line[5:].lstrip(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


@dataclass(slots=True)
class Seen:
    """What has gone by in one stream."""

    events: int = 0  # with data, [DONE] and usage-only ones not counted: about one a token
    usage: Usage | None = None
    finish_reason: str = ""
    error: dict[str, Any] | None = None
    done: bool = False


class EventScanner:
    """Cuts a byte stream into whole events. `feed` returns what goes to the client; `seen` is the account of it."""

    def __init__(self, *, keep_usage: bool, limit: int) -> None:
        self.seen = Seen()
        self._keep_usage = keep_usage
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Whole events, without the usage chunk that the client did not ask for. Raises EventTooLarge."""
        if self._rest:
            data = self._rest + data
        if data.endswith(b"\n\n"):
            self._rest = b""
        else:
            cut = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
            if cut < 3:
                cut = 0
            data, self._rest = data[:cut], data[cut:]
            if len(self._rest) > self._limit:
                raise EventTooLarge
        if b'"usage":{' in data or b"[DONE]" in data or b'"error"' in data or _rarely(data):
            return self._look_into(data)
        self.seen.events += data.count(b"\n\n") or data.count(b"\n\r\n")  # line ends inside JSON are escaped
        return data

    def _look_into(self, data: bytes) -> bytes:
        return b"".join(event for event in split(data) if self._account(event))

    def _account(self, event: bytes) -> bool:
        """Write down what `event` tells; True if the client gets it."""
        data = data_of(event)
        if not data:
            return True
        seen = self.seen
        if data == b"[DONE]":
            seen.done = True
            return True
        chunk = decode(data)
        if chunk is None:
            seen.events += 1
            return True
        if chunk.error is not None:
            seen.error = chunk.error if isinstance(chunk.error, dict) else {"message": chunk.error}
            return True
        if chunk.usage is not None:
            seen.usage = chunk.usage
        if not chunk.choices:
            return self._keep_usage or chunk.usage is None
        for choice in chunk.choices:
            seen.finish_reason = choice.finish_reason or seen.finish_reason
        seen.events += 1
        return True


def _rarely(data: bytes) -> bool:
    """The spellings of the last events that are not the usual one of the middle of a stream."""
    return b'"usage": {' in data or b'"finish_reason":"' in data or b'"finish_reason": "' in data


def split(data: bytes) -> list[bytes]:
    """Whole events, each with its blank line, whichever line ending it uses."""
    separator = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    return [event + separator for event in data.split(separator) if event]


def is_preamble(event: bytes) -> bool:
    """True for a first event that says nothing yet (role only): an error right after it can still fail over."""
    chunk = decode(data_of(event))
    if chunk is None or chunk.error is not None or not chunk.choices or chunk.usage is not None:
        return False
    return all(
        choice.finish_reason is None
        and choice.delta is not None
        and not choice.delta.content
        and not choice.delta.reasoning_content
        and choice.delta.tool_calls is None
        for choice in chunk.choices
    )
