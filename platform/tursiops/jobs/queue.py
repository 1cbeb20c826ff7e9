"""Tells a worker that a job waits. The row is the truth: a lost message is sent again by the reaper."""

from __future__ import annotations

import uuid
from typing import Any

import structlog
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)


def send(job_id: uuid.UUID) -> None:
    from tursiops.jobs.tasks import run_job_task  # tasks call services, services send

    _send(run_job_task, str(job_id))


def send_garbage_collection() -> None:
    """After something was deleted; where the message is lost, beat's daily one does it."""
    from tursiops.jobs.tasks import collect_garbage_task

    _send(collect_garbage_task)


def _send(task: Any, *args: str) -> None:
    try:
        task.apply_async(args=args, retry=False)
    except (OperationalError, RedisError, OSError) as error:
        log.warning("task.not_sent", task=task.name, args=args, error=str(error), hint="it is sent again later")
