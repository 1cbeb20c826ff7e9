"""Reasoning apart from the answer: <think>…</think> and its like, in text, so that a tag may be several tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    begin: str
    end: str

    def opened_by(self, prompt: str, begun: dict[str, Any] | None) -> bool:
        """Whether the chat template has begun the reasoning itself (DeepSeek-R1, QwQ). A tag that a user wrote does
        not count: the template's own words come after it. `begun`: the message that the answer goes on with."""
        if begun is not None:
            content = begun["content"] or ""
            return bool(content.rfind(self.begin) > content.rfind(self.end))
        return prompt.rstrip().endswith(self.begin)


class ReasoningSplitter:
    """One answer's text, piece by piece → (reasoning, answer).

    Reasoning can only come first: a tag in the middle of an answer is text like any other. White space beside a tag
    belongs to the tag. An answer that never closes its reasoning is all reasoning.
    """

    def __init__(self, tags: ReasoningTags, opened: bool) -> None:
        self._tags = tags
        self.thinking = opened
        self._begun = False  # it is known how the answer begins
        self._fresh = True  # no word of the reasoning was seen
        self._ended = False  # the end tag was; white space before the answer may still come
        self._held = ""

    @property
    def over(self) -> bool:
        """Whatever comes now is answer, as it is."""
        return self._begun and not self.thinking and not self._ended

    @property
    def held(self) -> int:
        """Characters that may still become either, or a tag."""
        return len(self._held)

    def push(self, text: str) -> tuple[str, str]:
        if self.over:
            return "", text
        self._held += text
        if not self._begun and not self._begin():
            return "", ""
        reasoning = self._think() if self.thinking else ""
        return reasoning, "" if self.thinking else self._answer()

    def finish(self) -> tuple[str, str]:
        """What was held back. Unfinished tags are what they look like: text."""
        held, self._held = self._held, ""
        if self._ended and not held.strip():
            return "", ""
        return (held, "") if self.thinking else ("", held)

    def _begin(self) -> bool:
        """Whether it is known how the answer begins: with the tag, or without."""
        first = self._held.lstrip()
        if first.startswith(self._tags.begin):
            self.thinking = True
            self._held = first[len(self._tags.begin) :]
        elif self._tags.begin.startswith(first):  # an empty one, too
            return False
        self._begun = True
        return True

    def _think(self) -> str:
        if self._fresh:
            self._held = self._held.lstrip()
            self._fresh = not self._held
        at = self._held.find(self._tags.end)
        if at >= 0:
            reasoning = self._held[:at].rstrip()
            self._held = self._held[at + len(self._tags.end) :]
            self.thinking, self._ended = False, True
            return reasoning
        keep = len(self._held) - pending(self._held, (self._tags.end,))
        reasoning, self._held = self._held[:keep], self._held[keep:]
        return reasoning

    def _answer(self) -> str:
        text = self._held.lstrip() if self._ended else self._held
        if text:
            self._held, self._ended = "", False
        return text


def pending(text: str, tags: tuple[str, ...]) -> int:
    """Length of the longest tail that may be the beginning of a tag, with the white space before it."""
    known = 0
    for tag in tags:
        for length in range(min(len(tag) - 1, len(text)), known, -1):
            if text.endswith(tag[:length]):
                known = length
                break
    return len(text) - len(text[: len(text) - known].rstrip())
