"""Server-sent events as bytes: whole events are passed on as they came, only the few that matter are looked into."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

_EVENT = re.compile(rb".*?\n(?:\r?\n)+", re.DOTALL)
DONE = b"data: [DONE]\n\n"
PING = b": waiting\n\n"


class EventTooLarge(Exception):
    """An event of the engine is longer than the gateway holds."""


@dataclass(slots=True)
class Seen:
    """What one answer has told of itself."""

    events: int = 0  # that carry text, about one a token
    has_usage: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str = ""
    error: dict[str, Any] | None = None
    done: bool = False


class Reader(Protocol):
    """The part of a dialect that reads streams (`gateway.dialects`). `data` is one or more whole events."""

    def tells(self, data: bytes) -> bool:
        """Whether an event of `data` has to be looked into. Runs for every piece of every stream."""
        ...

    def text_events(self, data: bytes) -> int:
        """How many events of `data` carry text, where `tells` is false."""
        ...

    def account(self, data: bytes, seen: Seen, keep_usage: bool) -> bool:
        """Write into `seen` what one event's data tells; True if the client gets the event."""
        ...


class EventScanner:
    """Cuts a byte stream into whole events. `feed` returns what goes to the client; `seen` is the account of it."""

    def __init__(self, reader: Reader, *, keep_usage: bool, limit: int) -> None:
        self.seen = Seen()
        self._reader = reader
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
        if self._reader.tells(data):
            return b"".join(event for event in split(data) if self._account(event))
        self.seen.events += self._reader.text_events(data)
        return data

    def _account(self, event: bytes) -> bool:
        data = data_of(event)
        return self._reader.account(data, self.seen, self._keep_usage) if data else True


def data_of(event: bytes) -> bytes:
    """The data lines of one event, joined as the standard says."""
    lines = [line[5:].lstrip(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def split(data: bytes) -> list[bytes]:
    """Whole events, each with the blank lines that end it, whichever line endings they use. Nothing is lost."""
    return _EVENT.findall(data)
