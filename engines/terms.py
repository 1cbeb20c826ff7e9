"""Domain terms as people give them, and what no tokenizer is needed to refuse. Standard library only: the control plane
checks at its door what the job's child checks again. docs/domain-tokens.md."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

MAX_TERMS = 4000
"""Of one version. A term takes up to two rows of the embedding."""
MAX_LENGTH = 64
"""Characters of a term."""
MAX_CORPUS = 256 * 2**20
"""Bytes of a corpus: two tokenizers read all of it, some minutes of work."""


def problems(terms: Sequence[str]) -> dict[int, str]:
    """Place in `terms` → why that term can't be added, as a sentence without its subject. Empty: all can."""
    found: dict[int, str] = {}
    first: dict[str, int] = {}
    for index, term in enumerate(terms):
        reason = _problem(term)
        if reason is None and term in first:
            reason = f"is there twice, first as terms[{first[term]}]"
        if reason is not None:
            found[index] = reason
        first.setdefault(term, index)
    return found


def _problem(term: str) -> str | None:
    if not term.strip():
        return "is empty"
    if len(term) > MAX_LENGTH:
        return f"has {len(term)} characters; at most {MAX_LENGTH} are taken"
    if term != term.strip():
        return "begins or ends with white space"
    if any(character != " " and character.isspace() for character in term) or "  " in term:
        return "holds white space other than single blanks"
    if any(unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn") for character in term) or "\ufffd" in term:
        return "holds a character that is no text (control, private use or unassigned)"
    if not any(character.isalnum() for character in term):
        return "holds no letter and no digit"
    return None
