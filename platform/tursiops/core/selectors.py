"""Reading the outbox: events of a team after a number."""

from __future__ import annotations

import uuid
from typing import Any

from tursiops.core.models import Event, EventCounter
from tursiops.core.permissions import Action


def last_event_id(team: Any) -> int:
    """The number of the team's newest event; 0 before there is one."""
    counter = EventCounter.objects.filter(team=team).values_list("last", flat=True).first()
    return counter or 0


def events_after(
    *,
    user: Any,
    team: Any,
    after: int,
    limit: int,
    subject_type: str = "",
    subject_id: uuid.UUID | None = None,
) -> list[Event]:
    """At most `limit` events above `after`, in order, that `user` may see now."""
    rows = Event.objects.restrict(user, Action.VIEW, team).filter(sequence__gt=after)
    if subject_type:
        rows = rows.filter(subject_type=subject_type)
    if subject_id is not None:
        rows = rows.filter(subject_id=subject_id)
    return list(rows.order_by("sequence")[:limit])


def latest_events(
    *, user: Any, team: Any, limit: int, subject_type: str = "", subject_id: uuid.UUID | None = None
) -> list[Event]:
    """The newest `limit` events, oldest of them first: what a page shows before it follows."""
    rows = Event.objects.restrict(user, Action.VIEW, team)
    if subject_type:
        rows = rows.filter(subject_type=subject_type)
    if subject_id is not None:
        rows = rows.filter(subject_id=subject_id)
    return list(reversed(rows.order_by("-sequence")[:limit]))


def event_row(event: Event) -> dict[str, Any]:
    """Contract §6, `Event`: the same over REST and over the websocket."""
    return {
        "id": event.sequence,
        "kind": event.kind,
        "subject_type": event.subject_type,
        "subject_id": str(event.subject_id),
        "text": event.text,
        "payload": event.payload,
        "actor": event.actor,
        "created_at": event.created_at.isoformat().replace("+00:00", "Z"),
    }
