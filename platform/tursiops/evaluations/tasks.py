"""Celery's way into the services. No work is done here."""

from __future__ import annotations

import uuid

from celery import shared_task

from tursiops.evaluations import retention, schedules


@shared_task(name=schedules.TASK)  # type: ignore[untyped-decorator] # Celery has no types
def fire_schedule_task(schedule_id: str) -> None:
    schedules.fire(schedule_id=uuid.UUID(schedule_id))


@shared_task(name="evaluations.clean_up")  # type: ignore[untyped-decorator] # Celery has no types
def clean_up_task() -> None:
    retention.clean_up()
