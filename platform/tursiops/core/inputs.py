"""What comes in by REST is declared: a name that nothing reads is refused, never passed over.

A misspelt limit that is ignored makes an unlimited key, and nobody is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rest_framework import serializers

_NAMED = 20  # unknown names that one answer tells
_SHOWN = 100  # characters of each


# Base of every serializer that reads: bodies and query strings, nested ones too. Unknown fields are refused.
# A comment, for a docstring would be inherited into the API's reference.
class Input(serializers.Serializer[Any]):
    def to_internal_value(self, data: Any) -> Any:
        """Raises ValidationError with unknown and wrong fields together, so that one answer tells all."""
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)  # raises, and says what was expected
        refused: dict[str, Any] = unknown_fields(data, [name for name, it in self.fields.items() if not it.read_only])
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            # A slip first: the field that it left out is missing because of it.
            refused = {**refused, **(error.detail if isinstance(error.detail, dict) else {})}
        if refused:
            raise serializers.ValidationError(refused)
        return value


class NoInput(Input):
    """Of actions that take no body, and addresses that take no query."""


def unknown_fields(given: Iterable[Any], known: Collection[str], what: str = "field") -> dict[str, list[str]]:
    """`{name: [sentence]}` for each given name that is not known."""
    unknown = sorted({str(name) for name in given} - set(known))
    return {name[:_SHOWN]: [_sentence(name, known, what)] for name in unknown[:_NAMED]}


def _sentence(name: str, known: Collection[str], what: str) -> str:
    if not known:
        return f"Unknown {what}: none is taken here. Leave it out."
    if close := meant(name, known):
        return f"Unknown {what}. Did you mean {close}?"
    return f"Unknown {what}. Known here: {', '.join(sorted(known))}."


def meant(name: str, known: Collection[str]) -> str:
    """The known name that `name` is a slip, another spelling or the initials of; empty if none is near."""
    lower = name.lower()[:_SHOWN]
    for candidate in known:
        if lower == "".join(word[0] for word in candidate.split("_") if word):
            return candidate
    return next(iter(get_close_matches(lower, known, n=1, cutoff=0.6)), "")
