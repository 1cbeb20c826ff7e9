"""Who asks, and what they may use: the bearer token against the snapshot."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tursiops import secrets
from tursiops.gateway.asgi import Scope, header
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.snapshot import RouteEntry, Snapshot

_SHOWN = 20  # names in a message


@dataclass(frozen=True, slots=True)
class Caller:
    """Limits are None where there is none. A request of our own processes has a user instead of a key."""

    team: str
    key: str | None = None
    user: str | None = None
    models: tuple[str, ...] = ()
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    consents: bool = False  # to prompts being kept, masked, for calibration

    def may_use(self, name: str) -> bool:
        return not self.models or name in self.models


def authenticate(scope: Scope, snapshot: Snapshot) -> Caller:
    """Raises GatewayError (401)."""
    scheme, _, token = (header(scope, b"authorization") or _anthropic(scope)).partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise _refused("missing_api_key", "No API key: send the header `Authorization: Bearer ts-…`.")
    if token.startswith(secrets.INTERNAL_PREFIX):
        return _internal(token)
    entry = snapshot.keys.get(secrets.hash_api_key(token))
    if entry is None:
        raise _refused("invalid_api_key", "This API key is unknown or revoked. Make a new one under API keys.")
    if entry.expires_at is not None and entry.expires_at <= time.time():
        raise _refused("expired_api_key", "This API key has expired. Make a new one under API keys.")
    return Caller(
        team=entry.team,
        key=entry.id,
        models=entry.models,
        rpm=entry.rpm,
        tpm=entry.tpm,
        parallel=entry.parallel,
        consents=entry.consents,
    )


def _anthropic(scope: Scope) -> str:
    """Anthropic's clients send the key in a header of its own."""
    key = header(scope, b"x-api-key")
    return f"Bearer {key}" if key else ""


def _internal(token: str) -> Caller:
    who = secrets.verify_internal(token)
    if who is None:
        raise _refused("invalid_api_key", "This internal token is not ours or has expired.")
    return Caller(team=who.team, user=who.user)


def _refused(code: str, message: str) -> GatewayError:
    return GatewayError(401, code, message)


def usable(caller: Caller, snapshot: Snapshot) -> list[RouteEntry]:
    """The routes that `caller` may send requests to, by name."""
    return [route for route in snapshot.by_team.get(caller.team, ()) if caller.may_use(route.name)]


def find_route(caller: Caller, snapshot: Snapshot, name: str) -> RouteEntry:
    """Raises GatewayError (404), naming what there is."""
    route = snapshot.by_name.get((caller.team, name))
    if route is not None and caller.may_use(name):
        return route
    names = [route.name for route in usable(caller, snapshot)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    available = f"Available: {', '.join(names[:_SHOWN])}{more}." if names else "No model is deployed for this key."
    shown = name if len(name) <= 100 else f"{name[:100]}…"
    raise GatewayError(404, "model_not_found", f"There is no model {shown!r}. {available}", param="model")
