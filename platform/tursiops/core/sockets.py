"""Who is behind a websocket, and whether they still may be: asked at the start and again while it lives."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import structlog
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.sessions.backends.db import SessionStore

from tursiops.core.permissions import Action, may

if TYPE_CHECKING:
    from tursiops.accounts.models import Team, User

log = structlog.get_logger(__name__)

SIGNED_OUT = 4401
NO_TEAM = 4403
UNKNOWN_PATH = 4404
BAD_REQUEST = 4400
TOO_SLOW = 4408
SEND_TIMEOUT_S = 20.0  # a client that takes nothing for so long loses its socket


async def unknown_path(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """ASGI: the address of no consumer. Accepted first, because a browser sees close codes of accepted sockets only."""
    log.info("websocket.unknown_path", path=scope["path"][:200])
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": UNKNOWN_PATH, "reason": "There is /ws/live and /ws/chat."})


@dataclass(frozen=True)
class Visitor:
    user: User
    team: Team
    session_key: str


async def visitor(scope: dict[str, Any]) -> Visitor | int:
    """The signed-in person of a socket and their current team, or the code to close it with."""
    found: Visitor | int = await database_sync_to_async(_visitor)(scope)
    return found


def _visitor(scope: dict[str, Any]) -> Visitor | int:
    from tursiops.accounts.middleware import current_team  # accounts builds on core

    user = scope.get("user")
    if user is None or not user.is_authenticated:
        return SIGNED_OUT
    team = current_team(SimpleNamespace(user=user, session=scope["session"]))  # type: ignore[arg-type] # all it reads
    return NO_TEAM if team is None else Visitor(user, team, scope["session"].session_key or "")


def still_allowed(who: Visitor) -> int:
    """0, or the code to close with: the person signed out, was disabled, or left the team. Reads the database."""
    user = get_user_model().objects.filter(pk=who.user.pk, is_active=True).first()
    if user is None or not SessionStore().exists(who.session_key):
        return SIGNED_OUT
    return 0 if may(user, Action.VIEW, who.team) else NO_TEAM
