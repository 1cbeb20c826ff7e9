"""Names of models and aliases: they stand in addresses and in clients' requests, so they are plain."""

from __future__ import annotations

import re

from tursiops.core.errors import TursiopsError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,49}")


def check(name: str) -> str:
    """Raises TursiopsError."""
    if not _NAME.fullmatch(name):
        raise TursiopsError(
            f"name: {name!r} can't be used.",
            fields={"name": ["Letters, digits, dot, dash and underscore; at most 100; a letter or digit first."]},
        )
    return name


def make(suggested: str) -> str:
    """A usable name out of a file's or repository's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", suggested).strip("-._")[:100] or "model"


def check_alias(name: str) -> None:
    """Raises TursiopsError."""
    if not _ALIAS.fullmatch(name):
        raise TursiopsError(
            f"The alias {name!r} can't be used.",
            fields={"name": ["Small letters, digits, dash and underscore; at most 50; a letter first."]},
        )
