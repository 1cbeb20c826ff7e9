"""What a request says about its scheduling: time-outs in its body, its tenant in a header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engines.native.request import Timeouts
from engines.native.serve import validate
from engines.native.serve.errors import invalid
from engines.native.serve.generate import Generation

TENANT_HEADER = "X-Tursiops-Team"
"""Set by the gateway; whoever has the engine's token is trusted with it."""
MAX_TENANT_LENGTH = 128
MAX_TIMEOUT_S = 86_400.0
_LAYERS = ("queue", "first_token", "total")


def scheduled(asked: Generation, body: validate.Body, headers: Mapping[str, str]) -> Generation:
    """`asked` with its time-outs and its tenant. Raises ApiError 400."""
    return replace(asked, timeouts=timeouts(body), tenant=tenant(headers))


def timeouts(body: validate.Body) -> Timeouts:
    """`timeout`: seconds in all, or an object of seconds by layer. Raises ApiError 400 naming the layer."""
    value = body.get("timeout")
    if value is None:
        return Timeouts()
    if not isinstance(value, dict):
        if isinstance(value, bool) or not isinstance(value, int | float):
            layers = ", ".join(_LAYERS)
            message = f"timeout must be a number of seconds, or an object with seconds for {layers}"
            raise invalid("timeout", message, "invalid_type")
        return Timeouts(total=_seconds(body, "timeout"))
    for name in value:
        if name not in _LAYERS:
            shown = name[:40]
            raise invalid(f"timeout.{shown}", f"timeout has no layer {shown!r}; it has {', '.join(_LAYERS)}")
    named = {f"timeout.{name}": limit for name, limit in value.items()}
    return Timeouts(*(_seconds(named, f"timeout.{name}") for name in _LAYERS))


def _seconds(body: validate.Body, name: str) -> float | None:
    if body.get(name) is None:
        return None
    return validate.number(body, name, 0.0, 0.0, MAX_TIMEOUT_S, above=True)


def tenant(headers: Mapping[str, str]) -> str:
    return headers.get(TENANT_HEADER, "")[:MAX_TENANT_LENGTH]
