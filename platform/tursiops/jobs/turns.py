"""One job of a kind at a time on a machine, where the kind asks for it (`JobKind.alone`). The others wait in the queue,
so that they take no worker's thread from jobs of other kinds."""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection

from tursiops.core.registry import job_kinds
from tursiops.jobs import kinds, orphans, queue
from tursiops.jobs.models import Job, JobState

WAITING = "Waits for another job of its kind on this machine."
AGAIN = timedelta(seconds=10)
"""After which one that waits is sent again, should nobody do so before: another machine may be free."""


@contextmanager
def claiming(job_id: uuid.UUID) -> Iterator[bool]:
    """Around a claim of a queued job: whether it may be made here and now.

    Two claims at once would not see each other; the lock is the kernel's, and a worker that dies gives it back.
    """
    kind = Job.objects.filter(pk=job_id).values_list("kind", flat=True).first()
    if kind is None or not _alone(kind):
        yield True
        return
    with (orphans.folder() / "claim.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield not _busy(kind, job_id)


def send_next(kind: str) -> None:
    """When a job of `kind` is over: whoever was asked for first of those that wait. Never raises for a database that is
    away: the reaper sends them then."""
    if not _alone(kind):
        return
    waiting = Job.objects.filter(kind=kind, state=JobState.QUEUED).order_by("created_at")
    try:
        first = waiting.values_list("pk", flat=True).first()
    except DatabaseError:
        connection.close()
        return
    if first is not None:
        queue.send(first)


def _alone(kind: str) -> bool:
    return kind in job_kinds and kinds.get(kind).alone  # the plugin may have been removed since


def _busy(kind: str, job_id: uuid.UUID) -> bool:
    here = Job.objects.filter(kind=kind, node_name=settings.NODE_NAME).exclude(pk=job_id)
    return bool(here.filter(state__in=[JobState.RUNNING, JobState.CANCELLING]).exists())
