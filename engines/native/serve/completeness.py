"""Whether a text that is still growing is complete: a sentence, a paragraph, a JSON value. One character at a time, so
that the result does not depend on how the text was cut into tokens. In English and Chinese.

A scanner takes text and gives back what may be sent, and whether the answer ends there. With `counts` false it follows
the text and ends nothing.
"""

from __future__ import annotations

import re
from typing import Protocol

import orjson

_CLOSING = {
    "(": ")",
    "[": "]",
    "{": "}",
    "“": "”",
    "‘": "’",
    "（": "）",
    "【": "】",
    "《": "》",
    "「": "」",
    "『": "』",
}
_CLOSERS = frozenset(_CLOSING.values())
_BRACKETS = frozenset(")]}）】")
_TOGGLES = frozenset('"`')  # the same character opens and closes; ' is mostly an apostrophe
_EMPHASIS = frozenset("*_")  # of Markdown, after a full stop
_CHINESE = frozenset("。！？｡")  # end a sentence whatever follows
_ENDS = _CHINESE | frozenset(".!?…")
_ABBREVIATIONS = frozenset(
    [
        "mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "vs", "etc", "cf", "vol",
        "fig", "figs", "eq", "pp", "eds", "al", "inc", "ltd", "corp", "dept", "univ", "approx",
        "jan", "feb", "apr", "aug", "sept", "oct", "nov", "dec", "gen", "col", "capt", "lt",
        "sgt", "rev", "gov", "sen",
    ]
)  # fmt: skip
_DOTTED = re.compile(r"([a-z]{1,3}\.)+[a-z]{1,3}", re.IGNORECASE)  # e.g, U.S, Ph.D


def _is_blank(character: str) -> bool:
    return character.isspace() and character != "\n"


class Completeness(Protocol):
    def push(self, text: str, counts: bool = True) -> tuple[str, bool]:
        """(what to send, whether the answer is complete with it). Nothing may be pushed after that."""
        ...

    def flush(self) -> str:
        """What was held back, when the text ends otherwise."""
        ...


class SentenceEnd:
    """A sentence ends after . ! ? … and the closing quotes, brackets and emphasis marks that follow, before a blank and
    then anything but a small letter (or before a line break); after 。！？ before anything else. It does not end

    - while a quote or bracket is open (a blank line forgets those that were never closed), nor after （如此。）,
    - at an ellipsis (… or two stops and more, unless one is ! or ?),
    - at the full stop of an abbreviation (those above, dotted ones as e.g., and single letters but I), of a number that
      begins a line (1. First), or inside a word (3.14, example.com).

    Blanks that may follow a sentence are held back until it shows.
    """

    def __init__(self) -> None:
        self._held = ""  # blanks after what is a sentence, unless it goes on with a small letter
        self._open: list[str] = []  # closing characters that are awaited
        self._stops = ""  # the stops just read, closing characters after them left out
        self._word = ""  # since the last blank
        self._before = ""  # the word at the first of the stops
        self._first = True  # whether the word is the first of its line
        self._began = False
        self._blank_line = True

    def push(self, text: str, counts: bool = True) -> tuple[str, bool]:
        sent: list[str] = []
        for character in text:
            ends = self._ends_before(character)
            waits = ends and not self._held and _is_blank(character) and not _CHINESE & set(self._stops)
            if ends and not waits and counts:
                self._held = ""
                return "".join(sent), True
            self._take(character)
            if waits or (self._held and _is_blank(character)):
                self._held += character
            else:
                sent.append(self._held + character)
                self._held = ""
        return "".join(sent), False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _ends_before(self, character: str) -> bool:
        if self._held:
            return not (_is_blank(character) or character.islower())
        if not self._stops or self._open or self._follows(character):
            return False
        if not (character.isspace() or _CHINESE & set(self._stops)):
            return False
        return self._is_end()

    def _is_end(self) -> bool:
        stops, word = self._stops, self._before.lstrip("\"'`*_([{“‘（")
        if not self._began:
            return False
        if not set(stops) & set("!?！？") and (len(stops) > 1 or "…" in stops):
            return False
        if stops != ".":
            return True
        if len(word) == 1 and word.isalpha() and word.isascii() and word != "I":
            return False
        if word.lower() in _ABBREVIATIONS or _DOTTED.fullmatch(word):
            return False
        return not (self._first and word.isdecimal())

    def _is_aside(self, bracket: str) -> bool:
        """Whether the stops before it are those of an aside (如此。) in a Chinese sentence, which goes on. In English
        the next letter says so."""
        return bracket in _BRACKETS and bool(_CHINESE & set(self._stops))

    def _follows(self, character: str) -> bool:
        """Whether it still belongs to the stops before it."""
        return character in _ENDS or character in _CLOSERS or character in self._open or character in _EMPHASIS

    def _take(self, character: str) -> None:
        if character in _ENDS:
            if not self._stops:
                self._before = self._word
            self._stops += character
        elif not self._follows(character) or (character in self._open and self._is_aside(character)):
            self._stops = ""
        self._quote(character)
        if character.isspace():
            self._first = self._first and not self._word
            self._word = ""
            if character == "\n":
                if self._blank_line:
                    self._open.clear()
                self._first = self._blank_line = True
        else:
            self._word += character
            self._blank_line = False
            self._began = self._began or character not in _ENDS

    def _quote(self, character: str) -> None:
        if character in self._open:
            while self._open.pop() != character:
                pass
        elif character in _CLOSING:
            self._open.append(_CLOSING[character])
        elif character in _TOGGLES:
            self._open.append(character)


class ParagraphEnd:
    """A paragraph ends at the first blank line after some text, outside a fenced code block (```). The line break
    before it is no part of it, so white space after a line is held back until something follows."""

    def __init__(self) -> None:
        self._held = ""
        self._line = ""  # up to three characters that the line begins with
        self._began = self._fenced = False

    def push(self, text: str, counts: bool = True) -> tuple[str, bool]:
        sent: list[str] = []
        for character in text:
            if character == "\n" and self._held and counts:
                self._held = ""
                return "".join(sent), True
            if character.isspace() and (self._held or (character == "\n" and self._began and not self._fenced)):
                self._held += character
                self._line = ""
                continue
            sent.append(self._held + character)
            self._held = ""
            self._take(character)
        return "".join(sent), False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _take(self, character: str) -> None:
        if character == "\n":
            self._line = ""
        elif len(self._line) < 3 and not (character.isspace() and not self._line):
            self._line += character
            if self._line == "```":
                self._fenced = not self._fenced
        self._began = self._began or not character.isspace()


class JsonEnd:
    """The first object or array that is valid JSON ends with its last bracket. Text before it is let through; what
    begins like one and turns out to be none ([see below], a line break inside a string) is passed over."""

    def __init__(self) -> None:
        self._value: list[str] = []  # characters of what may be the value
        self._depth = 0
        self._in_string = self._escaped = False

    def push(self, text: str, counts: bool = True) -> tuple[str, bool]:
        for at, character in enumerate(text):
            if self._take(character) and counts:
                return text[: at + 1], True
        return text, False

    def flush(self) -> str:
        return ""

    def _take(self, character: str) -> bool:
        """Whether a value ends with this character."""
        if not self._value and character not in "{[":
            return False
        self._value.append(character)
        if self._in_string:
            if character == "\n":
                self._forget()
            elif self._escaped or character == "\\":
                self._escaped = not self._escaped
            elif character == '"':
                self._in_string = False
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        if self._depth or not self._value:
            return False
        whole = "".join(self._value)
        self._forget()
        return _is_json(whole)

    def _forget(self) -> None:
        self._value.clear()
        self._depth, self._in_string, self._escaped = 0, False, False


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


SCANNERS: dict[str, type[SentenceEnd | ParagraphEnd | JsonEnd]] = {
    "sentence": SentenceEnd,
    "paragraph": ParagraphEnd,
    "json": JsonEnd,
}
