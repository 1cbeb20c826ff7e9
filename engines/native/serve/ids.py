"""Ids of answers."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    """An id that is not guessable and never a client's own, so that two equal client ids can't meet inside."""
    return f"{prefix}-{secrets.token_hex(12)}"
