"""How a field of a deployment is refused."""

from __future__ import annotations

from tursiops.core.errors import TursiopsError


def refuse(field: str, message: str, hint: str = "") -> TursiopsError:
    return TursiopsError(f"{field}: {message}", hint=hint, fields={field: [message]})
