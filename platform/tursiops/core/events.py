"""The outbox: every change writes its event in its own transaction; pushes happen after the commit."""

from __future__ import annotations

import uuid
from typing import Any

from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from django.db import connection, transaction
from redis.exceptions import RedisError

from tursiops.core.models import Event, EventCounter


def record(
    *,
    team: Any,
    kind: str,
    subject_type: str,
    subject_id: uuid.UUID,
    text: str,
    payload: dict[str, Any] | None = None,
    actor: str = "",
) -> Event:
    """Write the next event of `team`. Must run inside the transaction of the change that it tells of.

    The team's counter row is locked until commit, so that a follower who has seen event n will see every
    event below n: numbers become visible in order.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("events.record outside a transaction: the event could be seen without its change")
    EventCounter.objects.get_or_create(team=team)
    counter = EventCounter.objects.select_for_update().get(team=team)
    counter.last += 1
    counter.save(update_fields=["last"])
    event = Event.objects.create(
        team=team,
        sequence=counter.last,
        kind=kind,
        subject_type=subject_type,
        subject_id=subject_id,
        text=text[:500],
        payload=payload or {},
        actor=actor,
    )
    transaction.on_commit(lambda: _announce(team.pk, event.sequence))
    return event


def group_name(team_id: uuid.UUID) -> str:
    return f"events.{team_id.hex}"


def _announce(team_id: uuid.UUID, sequence: int) -> None:
    """Tell the team's sockets that there is something new. They read the rows; a lost push heals by itself."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(layer.group_send)(group_name(team_id), {"type": "events.new", "sequence": sequence})
    except (OSError, RedisError, ChannelFull):  # broker away: followers ask again from their last id
        return
