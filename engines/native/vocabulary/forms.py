"""What is added to a tokenizer for a term.

A byte-level tokenizer writes the blank before a word into the word's token. An added token without it would leave that
blank behind as a token of its own, which costs a token and which the model has hardly ever seen. So a term of a script
with blanks gets two tokens: " term", as in running text, and "term", as after a bracket or at a line's start.

Both are added tokens of the tokenizer's own format (matched in the text before it is split, the longest first), so any
library that reads tokenizer.json reads them. Texts that hold none of them are split exactly as before.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer

from engines.native.serve.detokenize import Detokenizer
from engines.protocol import ChildError

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, kana and Han: no blanks between words."""
_JOINED = re.compile("[\u1100-\u11ff\uac00-\ud7af]")
"""Hangul: blanks before words, but endings follow without one."""
_PROBES = ("{}", "a{} b", "({})x", "1{}2", "一{}二", "{}{}")


@dataclass(frozen=True, slots=True)
class Form:
    """pieces: the ids that stand for `text` in the base model. single_word: matched only between characters that are
    no part of a word."""

    text: str
    pieces: tuple[int, ...]
    single_word: bool

    def token(self) -> AddedToken:
        return AddedToken(self.text, single_word=self.single_word, normalized=False, special=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """code: "already_a_token" | "holds_special_token" | "no_form" | "not_exact". reason: lacks its subject."""

    code: str
    reason: str


class Vocabulary:
    """A base tokenizer, and the questions about its tokens that decide on forms."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ChildError("unsupported_tokenizer") for one whose tokens have no bytes of their own."""
        self.tokenizer = tokenizer
        ids = tokenizer.get_vocab(with_added_tokens=True)
        self.size = max(ids.values()) + 1  # the first free id
        pieces = Detokenizer(tokenizer, self.size).pieces
        if pieces is None:
            raise ChildError(
                "unsupported_tokenizer",
                "model: its tokenizer writes no bytes per token, so texts with new tokens might not come back exactly",
                "Domain tokens can be added to models with a byte-level or SentencePiece tokenizer.",
            )
        self._known = ids
        self._sorted = sorted(pieces)
        added = tokenizer.get_added_tokens_decoder().values()
        self._special = [token.content for token in added if token.special]

    def pieces(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def forms(self, term: str) -> list[Form] | Refused:
        """The tokens to add, the one of running text first."""
        special = next((name for name in self._special if name in term), None)
        if special is not None:
            return Refused("holds_special_token", f"holds the special token {special}")
        spaced = not _UNSPACED.match(term[0])
        texts = [f" {term}", term] if spaced else [term]
        made = [Form(text, self.pieces(text), self._single_word(text)) for text in texts]
        if len(made[0].pieces) < 2:
            return Refused("already_a_token", f"is one token already (id {made[0].pieces[0]})")
        if spaced and self._begins_a_longer_word(made[0].text):
            made = made[1:]
        made = [form for form in made if len(form.pieces) > 1 and form.text not in self._known]
        return made or Refused(
            "no_form", "is the beginning of longer tokens, and one token without the blank before it"
        )

    def _single_word(self, text: str) -> bool:
        """A blank is a border of its own; the library would ask for another one before it."""
        ends = text[0] + text[-1]
        return bool(re.fullmatch(r"\w\w", ends)) and not _UNSPACED.search(ends) and not _JOINED.search(ends)

    def _begins_a_longer_word(self, text: str) -> bool:
        """Whether a token of the base goes on with a letter after `text`: " liquid" must not cut " liquidity"."""
        begin = text.encode()
        place = bisect.bisect_left(self._sorted, begin)
        for piece in self._sorted[place:]:
            if not piece.startswith(begin):
                return False
            rest = piece[len(begin) :].decode(errors="replace")
            if rest and rest[0].isalpha():
                return True
        return False


def inexact(base: Tokenizer, forms: Sequence[Form]) -> set[str]:
    """Texts of the forms that would not come back from the tokenizer's own decoder wherever the base's text does:
    byte-level decoders take an added "é" for the byte E9, and some normalizers put a blank after every added token."""
    grown = extended(base, forms)
    return {form.text for form in forms if not _comes_back(base, grown, form.text)}


def _comes_back(base: Tokenizer, grown: Tokenizer, text: str) -> bool:
    probes = [probe.replace("{}", text) for probe in _PROBES]
    return all(text_of(grown, probe) == probe or text_of(base, probe) != probe for probe in probes)


def text_of(tokenizer: Tokenizer, text: str) -> str:
    """There and back."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    decoded: str = tokenizer.decode(ids, skip_special_tokens=False)
    return decoded


def extended(tokenizer: Tokenizer, forms: Sequence[Form]) -> Tokenizer:
    """A copy with the forms as added tokens, whose ids follow the base's in the order given."""
    made = Tokenizer.from_str(tokenizer.to_str())
    add(made, forms)
    return made


def add(tokenizer: Tokenizer, forms: Sequence[Form]) -> None:
    tokenizer.add_tokens([form.token() for form in forms])
