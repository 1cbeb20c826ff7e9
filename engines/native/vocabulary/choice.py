"""Which forms a list of terms comes to, and what is said of the terms that can't be added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines import terms as door
from engines.native.vocabulary.forms import Form, Refused, Vocabulary, inexact
from engines.protocol import ChildError

MAX_ROWS = 2**20
"""Of an embedding: four times the largest vocabulary in use. Each row of a batch keeps counts of that many tokens."""
ALIGN = 64
"""Rows come in multiples of it, so that tensor cores take the head's product whole."""
_NAMED = 10  # terms that one error tells


@dataclass(frozen=True, slots=True)
class Choice:
    """terms: term → its forms. skipped: (term, code, reason)."""

    terms: dict[str, list[Form]]
    skipped: list[tuple[str, str, str]]

    @property
    def forms(self) -> list[Form]:
        return [form for forms in self.terms.values() for form in forms]


def choose(vocabulary: Vocabulary, terms: Sequence[str], *, skip: bool, limit: int = MAX_ROWS) -> Choice:
    """skip: terms that need no token, or can't have one, are left out; else they are an error.

    Raises ChildError: no_terms, too_many_terms, bad_terms (naming each as terms[place]), vocab_limit.
    """
    if not terms:
        raise ChildError("no_terms", "terms: there is none", "Give terms, or a corpus to find them in.")
    if len(terms) > door.MAX_TERMS:
        raise ChildError(
            "too_many_terms",
            f"terms: {len(terms):,} are given, at most {door.MAX_TERMS:,} are taken",
            "Choose the best.",
        )
    refused: dict[int, tuple[str, str]] = {index: ("bad_term", why) for index, why in door.problems(terms).items()}
    found: dict[int, list[Form]] = {}
    for index, term in enumerate(terms):
        if index not in refused:
            made = vocabulary.forms(term)
            if isinstance(made, Refused):
                refused[index] = (made.code, made.reason)
            else:
                found[index] = made
    _drop_inexact(vocabulary, found, refused)
    if refused and not skip:
        raise _error(terms, refused)
    choice = Choice(
        terms={terms[index]: found[index] for index in sorted(found)},
        skipped=[(terms[index], *refused[index]) for index in sorted(refused)],
    )
    if not choice.terms:
        raise _error(terms, refused)
    needed = vocabulary.size + len(choice.forms)
    if needed > limit:
        raise ChildError(
            "vocab_limit",
            f"terms: {len(choice.forms):,} new tokens make a vocabulary of {needed:,}, and {limit:,} is the limit",
            f"Leave out terms: {max(limit - vocabulary.size, 0):,} more tokens fit.",
        )
    return choice


def _drop_inexact(vocabulary: Vocabulary, found: dict[int, list[Form]], refused: dict[int, tuple[str, str]]) -> None:
    bad = inexact(vocabulary.tokenizer, [form for forms in found.values() for form in forms])
    for index, forms in list(found.items()):
        found[index] = [form for form in forms if form.text not in bad]
        if not found[index]:
            del found[index]
            refused[index] = ("not_exact", "would not come back exactly from this tokenizer's decoder")


def _error(terms: Sequence[str], refused: dict[int, tuple[str, str]]) -> ChildError:
    named = [f"terms[{index}] ({terms[index][:40]!r}) {refused[index][1]}" for index in sorted(refused)[:_NAMED]]
    more = f"; and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
    return ChildError("bad_terms", "; ".join(named) + more, "Take these out, or ask to leave out what needs no token.")


def rows_needed(rows: int, used: int) -> int:
    """Rows of a table that has `rows` and must hold the ids below `used`."""
    return rows if used <= rows else -(-used // ALIGN) * ALIGN
