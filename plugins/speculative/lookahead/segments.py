"""Which tokens begin a word, end a line, end a JSON key: from the vocabulary's texts, once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

BEGINS_WORD, ENDS_LINE, ENDS_KEY, MARK = 1, 2, 4, 8
"""Bits: begins a word (or is no letter at all); has a line's end; ends a JSON key (`":`); is JSON's punctuation."""

_LETTER = re.compile(r"[\w]")
_MARK = re.compile(r'[{}\[\],"]')
_KEY = re.compile(r'"\s*:')


def flags_of(pieces: Sequence[str | bytes | None]) -> bytes:
    """pieces: of each token id its text, with spaces as such; None has none. → of each id its bits."""
    flags = np.zeros(len(pieces), np.uint8)
    for token, piece in enumerate(pieces):
        text = piece.decode("utf-8", "replace") if isinstance(piece, bytes) else piece or ""
        if not text or not _LETTER.match(text):
            flags[token] |= BEGINS_WORD
        if "\n" in text:
            flags[token] |= ENDS_LINE
        if _KEY.search(text):
            flags[token] |= ENDS_KEY
        elif _MARK.search(text):
            flags[token] |= MARK
    return flags.tobytes()
