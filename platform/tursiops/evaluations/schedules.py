"""Schedules: celery-beat fires them from its own table, which each change here keeps in step; `fire` makes the run."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from tursiops.accounts.models import Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import TursiopsError
from tursiops.core.permissions import Action, may
from tursiops.deployments.refusals import refuse
from tursiops.evaluations import cron, rows, runs, selectors, suites, targets
from tursiops.evaluations.models import Run, Schedule
from tursiops.evaluations.targets import Target

log = structlog.get_logger(__name__)

TASK = "evaluations.fire_schedule"
LATE = timedelta(minutes=10)  # beat looks every few seconds: what is later was missed
MOST_MISSED = 1000
SCHEDULER = Actor("scheduler")


def create_schedule(*, team: Team, actor: Actor, target: Target, **fields: Any) -> Schedule:
    """`fields`: name, suite, cron, timezone, enabled, run_missed. Its runs have the rights of who makes it.

    Raises TursiopsError naming the field.
    """
    schedule = Schedule(team=team, owner=actor.user, **target.fields, **fields)
    _check(schedule)
    try:
        with transaction.atomic():
            _keep_task(schedule)
            schedule.fired_for = timezone.now()  # times before it existed were not missed
            schedule.save(force_insert=True)
            _tell(schedule, actor, "schedule.created", f"the schedule {schedule.name} was made")
    except IntegrityError as error:
        raise suites.taken(schedule.name) from error
    return schedule


def update_schedule(*, schedule: Schedule, actor: Actor, target: Target | None = None, **given: Any) -> Schedule:
    """Whoever saves a schedule becomes its owner: its runs have their rights."""
    given |= target.fields if target is not None else {}
    try:
        with transaction.atomic():
            row: Schedule = selectors.schedules().select_for_update(of=("self",)).get(pk=schedule.pk)
            changes = {name: [rows.plain(getattr(row, name)), rows.plain(value)] for name, value in given.items()}
            renewed = {"cron", "timezone"} & set(given) or (given.get("enabled") and not row.enabled)
            for name, value in given.items():
                setattr(row, name, value)
            _check(row)
            row.owner = actor.user
            if renewed:  # what passed under the old times, or while it was off, was not missed
                row.fired_for, row.reason = timezone.now(), ""
            _keep_task(row)
            row.save()
            _tell(row, actor, "schedule.updated", f"the schedule {row.name} was changed", changes)
    except IntegrityError as error:
        raise suites.taken(str(given.get("name", ""))) from error
    return row


@transaction.atomic
def delete_schedule(*, schedule: Schedule, actor: Actor) -> None:
    """Its runs stay."""
    _tell(schedule, actor, "schedule.deleted", f"the schedule {schedule.name} was deleted")
    if schedule.task is not None:
        schedule.task.delete()
    schedule.delete()


def _check(schedule: Schedule) -> None:
    try:
        read = cron.parse(schedule.cron, schedule.timezone)
    except cron.CronError as error:
        raise refuse(error.field, str(error)) from error
    schedule.cron = read.text
    if schedule.endpoint is not None:
        targets.check_url(schedule.endpoint.url)


def _keep_task(schedule: Schedule) -> None:
    """Write the row that celery-beat reads; it notices within seconds."""
    read = cron.parse(schedule.cron, schedule.timezone)
    when, _ = CrontabSchedule.objects.get_or_create(**read.fields, timezone=read.zone)
    task = schedule.task or PeriodicTask(name=f"evaluation {schedule.pk}", task=TASK)
    task.crontab, task.enabled = when, schedule.enabled
    task.args = json.dumps([str(schedule.pk)])
    task.save()
    schedule.task = task


def fire(*, schedule_id: uuid.UUID, now: datetime | None = None) -> Run | None:
    """Make the run of the newest time that has come; None where there is nothing to do, or the reason is told.

    Idempotent: one time makes one run, however often the message comes. The run is made in the transaction that notes
    its time: a worker that is killed between both loses neither. Times that passed while nothing could fire are
    counted; the newest of them is run late, or left out, as the schedule says.
    """
    now = now or timezone.now()
    with transaction.atomic():
        schedule: Schedule | None = selectors.schedules().select_for_update(of=("self",)).filter(pk=schedule_id).first()
        if schedule is None:  # it went with its target
            PeriodicTask.objects.filter(task=TASK, args=json.dumps([str(schedule_id)])).delete()
            return None
        if not schedule.enabled:
            return None
        read = cron.parse(schedule.cron, schedule.timezone)
        due = cron.between(read, schedule.fired_for or schedule.created_at, now, MOST_MISSED)
        if not due:
            return None
        newest = due[-1]
        late = now - newest > LATE
        missed = len(due) - (0 if late else 1)
        schedule.fired_for, schedule.missed = newest, schedule.missed + missed
        skipped = late and not schedule.run_missed
        schedule.reason = f"{missed} of its times passed while the platform was down." if missed else ""
        schedule.save(update_fields=["fired_for", "missed", "reason", "updated_at"])
        if missed:
            told = "left out" if skipped else "run once, late"
            _tell(schedule, SCHEDULER, "schedule.missed", f"{schedule.name}: {schedule.reason[:-1]}; {told}")
        return None if skipped else _run(schedule, newest)


def _run(schedule: Schedule, at: datetime) -> Run | None:
    """In the transaction of `fire`. Refusals become the schedule's reason and an event: nobody waits for an answer at
    night."""
    target = targets.of(schedule)
    owner = schedule.owner
    try:
        if owner is None or not owner.is_active or not may(owner, Action.CHANGE, schedule.team):
            raise TursiopsError(
                "Who saved this schedule may not start runs in this team any more.", hint="Save it as somebody else."
            )
        assert target is not None  # it goes with its target
        with transaction.atomic():  # a savepoint: a refusal takes nothing else back
            return runs.create_run(
                suite=schedule.suite,
                target=target,
                actor=Actor(owner.get_username(), owner),
                schedule=schedule,
                idempotency_key=f"schedule {schedule.pk} {rows.time(at)}",
            )
    except TursiopsError as error:
        log.warning("evaluation.schedule_refused", schedule=str(schedule.pk), error=error.message)
        schedule.reason = f"{error.message} {error.hint}".strip()[:500]
        schedule.save(update_fields=["reason", "updated_at"])
        _tell(schedule, SCHEDULER, "schedule.failed", f"{schedule.name} made no run: {schedule.reason}")
        return None


def _tell(schedule: Schedule, actor: Actor, kind: str, text: str, changes: dict[str, Any] | None = None) -> None:
    record_change(
        team=schedule.team,
        actor=actor,
        kind=kind,
        subject_type="evaluation_schedule",
        subject_id=schedule.pk,
        text=text,
        payload=rows.schedule_row(schedule, timezone.now()),
        changes=changes,
    )
