"""Celery's way into the services. No work is done here."""

from __future__ import annotations

import time
import uuid
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down
from django.db.models import Min

from tursiops.core import store
from tursiops.jobs import run, runner, services
from tursiops.jobs.models import Job, JobState


@shared_task(name="jobs.run_job")  # type: ignore[untyped-decorator] # Celery has no types
def run_job_task(job_id: str) -> None:
    if run.stopping.is_set():  # left in the queue's hands: the reaper sends it again
        return
    runner.run_job(uuid.UUID(job_id))


@shared_task(name="jobs.reap_lost_jobs")  # type: ignore[untyped-decorator] # Celery has no types
def reap_lost_jobs_task() -> None:
    services.reap_lost_jobs()


@shared_task(name="jobs.collect_garbage")  # type: ignore[untyped-decorator] # Celery has no types
def collect_garbage_task(min_age_s: float = 3600.0) -> None:
    """Running jobs put files into the store before any row refers to them: what is younger than they are stays."""
    started = Job.objects.filter(state__in=[JobState.RUNNING, JobState.CANCELLING]).aggregate(Min("started_at"))
    oldest = started["started_at__min"]
    limit = time.time() - min_age_s
    store.collect_garbage(older_than=min(limit, oldest.timestamp()) if oldest else limit)


@worker_shutting_down.connect  # type: ignore[untyped-decorator] # Celery has no types
def _stop_children(**kwargs: Any) -> None:
    """A worker that is told to stop gives its jobs back at once instead of waiting for them."""
    run.stopping.set()
