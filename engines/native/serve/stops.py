"""Stop strings in a stream of text: cut exactly before the first, hold back what may become one.

The first is the one that is complete first, so that the same text is cut in the same place however it was split into
tokens; of several that are complete with the same character, the longest.
"""

from __future__ import annotations


class StopMatcher:
    """Text goes in piece by piece; out comes what is certain not to belong to a stop string."""

    def __init__(self, stops: list[str], *, include: bool = False) -> None:
        """include: the stop string is part of the text."""
        self._stops, self._include = stops, include
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.met: str | None = None
        """The stop string that was met."""

    def push(self, text: str) -> tuple[str, bool]:
        """(text to send, whether a stop string was met). After a match nothing more may be pushed."""
        if not self._stops:
            return text, False
        window = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := window.find(stop)) >= 0]
        if found:
            end, begin, self.met = min(found)
            self._held = ""
            return window[: end if self._include else begin], True
        keep = self._pending(window)
        self._held = window[len(window) - keep :]
        return window[: len(window) - keep], False

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _pending(self, window: str) -> int:
        """Length of the longest tail that begins a stop string."""
        for length in range(min(self._longest - 1, len(window)), 0, -1):
            tail = window[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
