"""One quantization at a time on a machine: they share its processors or its GPU and its memory, and what it measures
of speed would be of both."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from django.db import DatabaseError, connection

from tursiops.jobs import orphans
from tursiops.jobs.models import Job, JobMetric, JobState
from tursiops.jobs.run import JobRun
from tursiops.quantization.verdicts import KIND

WAITING = "waiting for another quantization on this machine"
BEGAN = "began"
"""A metric of the job, told when its turn has come: progress counts from there."""
_LOOK_S = 0.5


@contextmanager
def turn(run: JobRun) -> Iterator[None]:
    """Around what is to be alone. Raises what JobRun.look_after does: a cancel ends the wait, too."""
    with (orphans.folder() / "quantization.lock").open("w") as file:
        if not _taken(file, run.job):
            run.log.write(WAITING)
            run.progress(0.0, WAITING)
            run.flush()
            while not _taken(file, run.job):
                run.look_after()
                time.sleep(_LOOK_S)
        JobMetric.objects.create(job=run.job, name=BEGAN, value=time.time())
        yield


def _taken(file: IO[str], job: Job) -> bool:
    """The lock is the kernel's: a worker that dies gives it back. Who was asked for first comes first."""
    if _behind(job):
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _behind(job: Job) -> bool:
    older = Job.objects.filter(kind=KIND, state=JobState.RUNNING, node_name=job.node_name)
    try:
        return older.filter(created_at__lt=job.created_at).exists()
    except DatabaseError:  # it is away for a moment; the lock alone decides
        connection.close()
        return False
