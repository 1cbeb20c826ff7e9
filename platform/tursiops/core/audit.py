"""Who acts, and the two records that every change leaves: the audit entry and the event, in its transaction."""

from __future__ import annotations

import ipaddress
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tursiops.core import events

if TYPE_CHECKING:
    from tursiops.accounts.models import Team, User
    from tursiops.core.models import Event


@dataclass(frozen=True)
class Actor:
    """The person or process behind a change. Processes are named "controller", "node:<name>", "worker:<name>"."""

    name: str
    user: User | None = None
    address: str | None = None


def actor_of(request: Any) -> Actor:
    """The person behind a DRF or Django request, with the address that they came from."""
    return Actor(request.user.get_username(), request.user, client_address(request))


def client_address(request: Any) -> str | None:
    """The peer's IP address. Behind the gateway (a unix socket, so no peer address) it is the gateway's word."""
    text = request.META.get("REMOTE_ADDR") or request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2]
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return None


def record_change(
    *,
    team: Team,
    actor: Actor,
    kind: str,
    subject_type: str,
    subject_id: uuid.UUID,
    text: str,
    payload: dict[str, Any] | None = None,
    changes: dict[str, Any] | None = None,
) -> Event:
    """Write the audit entry and the event of one change. Must run inside the change's transaction.

    `kind` is both the event's kind and the audit's action, e.g. "deployment.scaled"; `payload` is the subject as
    its list row shows it; `changes` holds values before and after, {"field": [old, new]}, free of secrets.
    """
    from tursiops.accounts.models import AuditEntry  # accounts builds on core

    event = events.record(
        team=team,
        kind=kind,
        subject_type=subject_type,
        subject_id=subject_id,
        text=text,
        payload=payload,
        actor=actor.name,
    )
    AuditEntry.objects.create(
        team=team,
        actor=actor.name,
        action=kind,
        subject_type=subject_type,
        subject_id=subject_id,
        changes=changes or {},
        address=actor.address,
    )
    return event
