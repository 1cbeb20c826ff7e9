"""Views of a row's text that leave out what differs: where a line begins, the line before counts by its head; after a
JSON value, the key counts, not the value. Raw n-grams can't see across either.

    line   (newline and two tokens of the line before, newline and tokens of this line)   its first tokens
    key    (the last key, how many marks came since, tokens since the last mark)          after each mark
"""

from __future__ import annotations

from engines.native.speculation.tree import Int32
from plugins.speculative.lookahead.segments import ENDS_KEY, ENDS_LINE, MARK
from plugins.speculative.lookahead.survival import KEY, LINE

HEAD = 3
"""Tokens of a line that count: its newline (which holds the indent in most vocabularies) and two more."""
PLACES = 4
"""Kept of each key, the newest."""
LARGEST = 1 << 11
"""Keys of one row, the newest, so that text of line ends alone stays small: half a megabyte."""
READ = 1 << 11
"""Tokens of a prompt that are read, the newest."""

Key = tuple[int, ...]


class Structure:
    """Of one row. flags: of each token id (`segments.flags_of`)."""

    def __init__(self, flags: bytes) -> None:
        self._flags = flags
        self._places: dict[Key, list[int]] = {}
        self._before: list[int] = []  # head of the line before
        self._line: list[int] = []  # head of this one
        self._name: Key = ()  # the last JSON key
        self._recent: list[int] = []  # the newest tokens, for the name
        self._marks = 0
        self._since: list[int] = []  # from the last mark on

    def begin(self, prompt: Int32) -> None:
        self.extend(prompt[-READ:].tolist(), max(0, len(prompt) - READ))

    def extend(self, tokens: list[int], position: int) -> None:
        """They stand at `position` and behind it."""
        flags, known = self._flags, len(self._flags)
        for place, token in enumerate(tokens, position):
            if (self._line and len(self._line) <= HEAD) or self._since:
                for key in self.keys().values():
                    self._put(key, place)
            flag = flags[token] if token < known else 0
            if flag & ENDS_LINE:
                self._before, self._line = self._line[:HEAD], [token]
            elif self._line and len(self._line) <= HEAD:
                self._line.append(token)
            if flag & ENDS_KEY:
                self._name, self._marks, self._since = (*self._recent, token), 0, []
            elif self._name and flag & MARK:
                self._marks, self._since = min(self._marks + 1, HEAD + 1), [token]
            elif self._since:
                self._since = [*self._since, token] if len(self._since) < HEAD else []
            self._recent = [*self._recent[-1:], token]

    def keys(self) -> dict[int, Key]:
        """view → the key of what follows now."""
        keys: dict[int, Key] = {}
        if self._line and len(self._line) <= HEAD and self._before:
            keys[LINE] = (-LINE, *self._before, -1, *self._line)
        if self._since:
            keys[KEY] = (-KEY, *self._name, -self._marks, *self._since)
        return keys

    def matches(self) -> list[tuple[int, int, int]]:
        """(view, tokens that count as matched, position), of each view the newest first."""
        found = []
        for view, key in self.keys().items():
            length = 1 + len(self._line if view == LINE else self._since)
            found += [(view, length, place) for place in reversed(self._places.get(key, ()))]
        return found

    def _put(self, key: Key, place: int) -> None:
        places = self._places.get(key)
        if places is not None:
            places.append(place)
            if len(places) > PLACES:
                del places[0]
            return
        if len(self._places) == LARGEST:
            del self._places[next(iter(self._places))]
        self._places[key] = [place]
