"""Progress of running jobs, pushed to the team's sockets. Not stored and not repeated: the row has the last value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import redis.exceptions
from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer

from tursiops.core.events import group_name

if TYPE_CHECKING:
    from tursiops.jobs.models import Job


Point = tuple[str, int | None, float]
"""Name, step and value of a metric, as JobMetric keeps it."""
MOST_POINTS = 500  # of one message; the rows have them all


def push_progress(job: Job, progress: float, text: str, points: Sequence[Point] = ()) -> None:
    layer = get_channel_layer()
    message = {
        "type": "job.progress",
        "id": str(job.pk),
        "progress": progress,
        "progress_text": text,
        "state": job.state,
        "points": list(points[-MOST_POINTS:]),
    }
    try:
        async_to_sync(layer.group_send)(group_name(job.team_id), message)
    except (OSError, ChannelFull, redis.exceptions.RedisError):  # broker away: the row still has it
        return
