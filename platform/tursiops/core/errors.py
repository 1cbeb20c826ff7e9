"""One shape for every error of the control plane's API.

{"error": {"code": "invalid", "message": "…", "hint": "…", "fields": {"name": ["…"]}}}
"""

from __future__ import annotations

from typing import Any


class TursiopsError(Exception):
    """An error that people read. `hint` says what to do next; `fields` names what was wrong with the input."""

    status = 400
    code = "invalid"

    def __init__(
        self, message: str, *, hint: str = "", code: str = "", fields: dict[str, list[str]] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code
        self.fields = fields or {}
        self.headers: dict[str, str] = {}  # of the answer, e.g. Retry-After


class Conflict(TursiopsError):
    status = 409
    code = "conflict"


class NotFound(TursiopsError):
    status = 404
    code = "not_found"


class Unavailable(TursiopsError):
    status = 503
    code = "unavailable"


def body(code: str, message: str, hint: str = "", fields: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint, "fields": fields or {}}}
