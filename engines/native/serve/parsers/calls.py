"""A call written as a JSON object, {"name": …, "arguments": {…}}, read as it grows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from enum import Enum, auto

from engines.native.serve.parsers.pieces import CallArguments, CallBegin, Piece

ARGUMENTS = ("arguments", "parameters")
_KEYS = {"name", "type", "id", *ARGUMENTS}
_SPACE = " \t\r\n"
_IN_STRING, _OUTSIDE, _SCALAR_END = re.compile(r'["\\]'), re.compile(r'["{}\[\]]'), re.compile(r"[\s,}\]]")
_CLOSES = {"{": "}", "[": "]"}


class State(Enum):
    OPEN = auto()
    DONE = auto()
    BAD = auto()


class CallObject:
    """Text goes in from its `{` on. The call begins as soon as name and arguments are known to be there; from then on
    arguments are handed out as they come, so that a long one streams.

    known: the names that count as a call, None for any. With names, other keys than those of a call are no call
    either, which is seen at the first one: an answer in JSON is not held back to its end.
    """

    def __init__(self, index: int, call_id: Callable[[], str], known: Collection[str] | None) -> None:
        self._index, self._call_id, self._known = index, call_id, known
        self.state, self.begun = State.OPEN, False
        self._step: Callable[[str, int], int] = self._start
        self._key, self._name = "", ""
        self._alone = False  # nothing encloses the arguments
        self._text: list[str] = []  # of the string or scalar being read
        self._early: list[str] | None = None  # arguments that came before the name
        self._closing: list[str] = []  # brackets to come, innermost last
        self._quoted = self._escaped = False
        self._out: list[Piece] = []

    @classmethod
    def named(cls, index: int, call_id: Callable[[], str], name: str) -> CallObject:
        """A call whose name came before the object, which is its arguments."""
        call = cls(index, call_id, None)
        call._name, call._key, call._step, call._alone = name, ARGUMENTS[0], call._value, True
        return call

    def feed(self, text: str) -> tuple[int, list[Piece]]:
        """(characters read, pieces). All are read while the object is open; none of what ended it badly."""
        at = 0
        while at < len(text) and self.state is State.OPEN:
            at = self._step(text, at)
        pieces, self._out = self._out, []
        return at, pieces

    # One method per place in the object; each reads from `at` and returns where it stopped.

    def _start(self, text: str, at: int) -> int:
        self._step = self._before_key
        return at + 1

    def _before_key(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            if text[at] == '"':
                self._text, self._escaped, self._step = [], False, self._in_key
            elif text[at] == "}":
                return self._close(text, at)
            else:
                return self._bad(at)
            at += 1
        return at

    def _in_key(self, text: str, at: int) -> int:
        at, key = self._string(text, at)
        if key is not None:
            self._key, self._step = key, self._colon
            if (self._known is not None and key not in _KEYS) or self._repeats(key):
                return self._bad(at)
        return at

    def _repeats(self, key: str) -> bool:
        if key == "name":
            return bool(self._name)
        return key in ARGUMENTS and (self.begun or self._early is not None)

    def _colon(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            if text[at] != ":":
                return self._bad(at)
            self._step = self._value
            at += 1
        return at

    def _value(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        character, arguments = text[at], self._key in ARGUMENTS
        self._text, self._escaped, self._quoted = [], False, False
        if character == '"':
            self._step = self._in_string
            return at + 1
        if self._key == "name" or (arguments and character not in "{n") or character in ",:}]":
            return self._bad(at)
        if character not in _CLOSES:
            self._step = self._in_scalar
            return at
        if arguments:
            self._early = []
            self._begin()
        self._closing, self._step = [_CLOSES[character]], self._in_container
        self._pass_on(character)
        return at + 1

    def _in_container(self, text: str, at: int) -> int:
        start = at
        while self._closing and at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._quoted else _OUTSIDE).search(text, at)
            if found is None:
                at = len(text)
                break
            character = found.group()
            at = found.end()
            if character == "\\":
                self._escaped = True
            elif character == '"':
                self._quoted = not self._quoted
            elif character in _CLOSES:
                self._closing.append(_CLOSES[character])
            elif self._closing.pop() != character:
                self._pass_on(text[start : at - 1])
                return self._bad(at - 1)
        self._pass_on(text[start:at])
        if not self._closing:
            self._step = self._after
            if self._alone:
                self.state = State.DONE
        return at

    def _in_string(self, text: str, at: int) -> int:
        at, value = self._string(text, at)
        if value is None:
            return at
        self._step = self._after
        if self._key == "name":
            if not value or (self._known is not None and value not in self._known):
                return self._bad(at)
            self._name = value
            self._begin()
        elif self._key in ARGUMENTS:  # some models write the object as a string
            return self._whole_arguments(value, at) if value.lstrip()[:1] == "{" else self._bad(at)
        return at

    def _in_scalar(self, text: str, at: int) -> int:
        found = _SCALAR_END.search(text, at)
        end = found.start() if found else len(text)
        self._text.append(text[at:end])
        if found:
            self._step = self._after
            if self._key in ARGUMENTS:
                return self._whole_arguments("{}", end) if "".join(self._text) == "null" else self._bad(end)
        return end

    def _after(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            if text[at] == "}":
                return self._close(text, at)
            if text[at] != ",":
                return self._bad(at)
            self._step = self._before_key
            at += 1
        return at

    def _close(self, text: str, at: int) -> int:
        if not self._name or (not self.begun and self._known is not None):
            return self._bad(at)
        if not self.begun:
            self._early = ["{}"]  # a function that takes none
            self._begin()
        self.state = State.DONE
        return at + 1

    def _bad(self, at: int) -> int:
        self.state = State.BAD
        return at

    def _string(self, text: str, at: int) -> tuple[int, str | None]:
        """Reads on in a string; its value once the closing quote came."""
        while at < len(text):
            if self._escaped:
                self._text.append(text[at])
                self._escaped = False
                at += 1
                continue
            found = _IN_STRING.search(text, at)
            end = found.start() if found else len(text)
            self._text.append(text[at:end])
            if found is None:
                return end, None
            at = found.end()
            if found.group() == '"':
                try:
                    value = str(json.loads(f'"{"".join(self._text)}"', strict=False))
                    value.encode()  # half a surrogate pair can't be sent
                    return at, value
                except ValueError:
                    return self._bad(at), None
            self._text.append("\\")
            self._escaped = True
        return at, None

    def _whole_arguments(self, arguments: str, at: int) -> int:
        self._early = [arguments]
        self._begin()
        return at

    def _begin(self) -> None:
        if not self._name or self._early is None:
            return
        self.begun = True
        self._out.append(CallBegin(self._index, self._call_id(), self._name))
        if early := "".join(self._early):
            self._out.append(CallArguments(self._index, early))

    def _pass_on(self, text: str) -> None:
        if self._key not in ARGUMENTS or not text:
            return
        if self.begun:
            self._out.append(CallArguments(self._index, text))
        elif self._early is not None:
            self._early.append(text)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
