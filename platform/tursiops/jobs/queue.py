"""Tells a worker that a job waits. The row is the truth: a lost message is sent again by the reaper."""

from __future__ import annotations

import uuid

import structlog
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)


def send(job_id: uuid.UUID) -> None:
    from tursiops.jobs.tasks import run_job_task  # tasks call services, services send

    try:
        run_job_task.apply_async(args=[str(job_id)], retry=False)
    except OperationalError as error:
        log.warning("job.not_sent", job=str(job_id), error=str(error), hint="the reaper sends it again in a minute")
