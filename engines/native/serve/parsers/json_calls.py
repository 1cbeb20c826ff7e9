"""Calls as JSON objects behind a tag, in a fence, or bare: Hermes and Qwen, Llama 3, and what Mistral's builds on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from engines.native.serve.parsers.calls import CallObject, State
from engines.native.serve.parsers.pieces import CallEnd, Content, Piece
from engines.native.serve.parsers.reasoning import pending


@dataclass(frozen=True, slots=True)
class Opener:
    """begin: what stands before a call ("" = nothing, at the start of an answer). end: what closes it, if anything.
    sure: nothing but a call stands behind it; else an object counts only if it names one of the request's tools."""

    begin: str
    end: str = ""
    sure: bool = True
    separator: str = ""  # between two calls that share the opener


class JsonCalls:
    """A ToolParser over `openers`."""

    def __init__(self, openers: tuple[Opener, ...], names: Collection[str], call_id: Callable[[], str]) -> None:
        self._tagged = tuple(opener for opener in openers if opener.begin)
        self._marks = frozenset(opener.begin[0] for opener in self._tagged)  # without them there is no tag
        self._bare = next((opener for opener in openers if not opener.begin), None)
        self._names, self._call_id = names, call_id
        self._buffer = ""  # not looked at, or held back
        self._raw = ""  # what a call that fails before it begins comes out as
        self._calls = 0
        self._opener = Opener("")
        self._listed = False  # inside [ … ] behind the opener
        self._object: CallObject | None = None
        self._unclosed = ""  # end tag of a call that is over, with something else before the tag
        self._content = False  # content came since the start or the last call
        self._step: Callable[[list[Piece]], bool] = self._at_start

    def push(self, text: str) -> list[Piece]:
        self._buffer += text
        pieces: list[Piece] = []
        while self._step(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        pieces: list[Piece] = []
        text, self._raw, self._buffer = self._raw + self._buffer, "", ""
        if self._object is not None and self._object.begun:
            pieces.append(CallEnd(self._calls))
        elif self._step == self._behind and any(mark.startswith(text.strip()) for mark in self._marks_behind):
            pass  # an end tag that was cut off, a separator, or nothing
        elif text.strip() or self._content or not self._calls:
            self._say(text, pieces)
        return pieces

    # Each step looks at the buffer and returns whether there may be more to do.

    def _at_start(self, pieces: list[Piece]) -> bool:
        first = self._buffer.lstrip()
        if not first:
            return False
        if first[0] in "{[" and self._bare is not None:
            self._opener = self._bare
            return self._inside(pieces)
        self._step = self._outside
        return True

    def _outside(self, pieces: list[Piece]) -> bool:
        """Content, up to the next tag."""
        if not self._unclosed and self._marks.isdisjoint(self._buffer):
            text = self._buffer.rstrip()
            self._say(text, pieces)
            self._buffer = self._buffer[len(text) :]
            return False
        found = [(at, opener) for opener in self._tagged if (at := self._buffer.find(opener.begin)) >= 0]
        at, opener = min(found, key=lambda each: each[0], default=(-1, None))
        closed = self._buffer.find(self._unclosed) if self._unclosed else -1
        if closed >= 0 and (opener is None or closed < at):
            self._say(self._buffer[:closed].rstrip(), pieces)
            self._buffer = self._buffer[closed + len(self._unclosed) :]
            self._unclosed = ""
            return True
        if opener is not None:
            text = self._buffer[:at].rstrip()
            self._say(text, pieces)
            after = at + len(opener.begin)
            self._raw, self._buffer = self._buffer[len(text) : after], self._buffer[after:]
            self._opener, self._unclosed, self._step = opener, "", self._inside
            return True
        tags = tuple(opener.begin for opener in self._tagged) + ((self._unclosed,) if self._unclosed else ())
        keep = len(self._buffer) - pending(self._buffer, tags)
        self._say(self._buffer[:keep], pieces)
        self._buffer = self._buffer[keep:]
        return False

    def _inside(self, pieces: list[Piece]) -> bool:
        """Behind an opener: an object, a list of them, or no call."""
        self._skip_space()
        if not self._buffer:
            return False
        if self._buffer[0] == "[" and not self._listed:
            self._listed, self._step = True, self._inside
            self._raw, self._buffer = self._raw + "[", self._buffer[1:]
            return True
        if self._buffer[0] != "{":
            return self._no_call(pieces)
        self._object = CallObject(self._calls, self._call_id, None if self._opener.sure else self._names)
        self._step = self._in_object
        return True

    def _in_object(self, pieces: list[Piece]) -> bool:
        call = self._object
        assert call is not None
        used, new = call.feed(self._buffer)
        pieces += new
        self._raw = "" if call.begun else self._raw + self._buffer[:used]
        self._buffer = self._buffer[used:]
        if call.state is State.OPEN:
            return False
        self._object = None
        if not call.begun:
            return self._no_call(pieces)
        pieces.append(CallEnd(self._calls))
        self._calls += 1
        self._content, self._step = False, self._behind
        return True

    def _behind(self, pieces: list[Piece]) -> bool:
        """Behind a call: its end tag, another call, or something else."""
        self._skip_space()
        end, separator = self._marks_behind
        if not self._buffer or (end.startswith(self._buffer) and self._buffer != end):
            return False
        if end and self._buffer.startswith(end):
            self._buffer, self._raw = self._buffer[len(end) :], ""
            if not self._listed or not self._opener.end:
                self._step = self._outside
            self._listed = False
        elif self._buffer[0] == "{":
            self._step = self._inside
        elif separator and self._buffer.startswith(separator):
            self._raw, self._buffer = self._raw + separator, self._buffer[len(separator) :]
        else:
            self._buffer, self._raw = self._raw + self._buffer, ""
            self._listed, self._unclosed, self._step = False, self._opener.end, self._outside
        return True

    @property
    def _marks_behind(self) -> tuple[str, str]:
        """(what closes the calls, what parts them)"""
        return ("]", ",") if self._listed else (self._opener.end, self._opener.separator)

    def _skip_space(self) -> None:
        text = self._buffer.lstrip()
        self._raw += self._buffer[: len(self._buffer) - len(text)]
        self._buffer = text

    def _no_call(self, pieces: list[Piece]) -> bool:
        self._say(self._raw, pieces)
        self._raw, self._listed, self._step = "", False, self._outside
        return True

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if text:
            pieces.append(Content(text))
            self._content = True
