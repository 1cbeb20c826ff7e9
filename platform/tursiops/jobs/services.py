"""Every change of a job's state. A change is a compare-and-set on the row: of two who try, one succeeds, and a
message that is delivered twice does nothing the second time."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from tursiops.accounts.models import Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict
from tursiops.core.registry import job_kinds
from tursiops.jobs import kinds, orphans, queue, turns
from tursiops.jobs.models import ENDED, TRANSITIONS, Job, JobState
from tursiops.jobs.serializers import JobSerializer

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=30)  # a worker that has not renewed for so long is lost
REDELIVER = timedelta(seconds=60)  # a queued job whose message may have been lost is sent again
REAPER = Actor("reaper")


def enqueue_job(
    *,
    team: Team,
    actor: Actor,
    kind: str,
    title: str,
    spec: dict[str, Any],
    subject_type: str = "",
    subject_id: uuid.UUID | None = None,
    idempotency_key: str | None = None,
) -> Job:
    """Queue a job; with a key that the team has used before, the job of that time is returned instead.

    Raises NotFound (kind) or TursiopsError (a field of the spec).
    """
    job_kind = kinds.get(kind)
    kinds.check_spec(job_kind, spec)
    try:
        with transaction.atomic():
            job: Job = Job.objects.create(
                team=team,
                kind=kind,
                title=title[:200],
                spec=spec,
                subject_type=subject_type,
                subject_id=subject_id,
                requested_by=actor.user,
                max_attempts=job_kind.max_attempts,
                idempotency_key=idempotency_key,
                lease_expires_at=timezone.now() + REDELIVER,
            )
            _announce(job, actor, f"{job.title}: queued")
            transaction.on_commit(lambda: queue.send(job.pk))
    except IntegrityError:
        existing: Job | None = Job.objects.filter(team=team, idempotency_key=idempotency_key).first()
        if idempotency_key is None or existing is None:
            raise
        return existing
    return job


def claim_job(*, job_id: uuid.UUID, owner: str) -> Job | None:
    """Take a queued job for `owner` under a lease; None if it is not there to be taken, or not its turn."""
    with turns.claiming(job_id) as free:
        if not free:
            _put_off(job_id)
            return None
        return _move(
            job_id,
            [JobState.QUEUED],
            JobState.RUNNING,
            Actor(f"worker:{settings.NODE_NAME}"),
            text="started",
            attempt=F("attempt") + 1,
            node_name=settings.NODE_NAME,
            lease_owner=owner,
            lease_expires_at=timezone.now() + LEASE,
            started_at=timezone.now(),
            finished_at=None,
            progress=0.0,
            progress_text="",
            reason="",
            error={},
            report={},
        )


def _put_off(job_id: uuid.UUID) -> None:
    """It stays queued, says why, and is sent again."""
    queued = Job.objects.filter(pk=job_id, state=JobState.QUEUED)
    with transaction.atomic():
        queued.update(lease_expires_at=timezone.now() + turns.AGAIN)
        if queued.exclude(reason=turns.WAITING).update(reason=turns.WAITING, updated_at=timezone.now()):
            job = Job.objects.select_related("team", "requested_by").get(pk=job_id)
            _announce(job, Actor(f"worker:{settings.NODE_NAME}"), f"{job.title}: waits for its turn")


def renew_lease(*, job_id: uuid.UUID, owner: str) -> bool:
    """False if `owner` no longer has the job: it must stop its work at once and write nothing more."""
    return bool(_held(job_id, owner).update(lease_expires_at=timezone.now() + LEASE))


def finish_job(
    *,
    job_id: uuid.UUID,
    owner: str,
    state: JobState,
    reason: str = "",
    report: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
    log_sha256: str | None = None,
) -> Job | None:
    """The end of the work of `owner`; None if the lease was lost, and then nothing is written."""
    done: dict[str, Any] = {"progress": 1.0} if state == JobState.SUCCEEDED else {}
    return _move(
        job_id,
        [old for old in (JobState.RUNNING, JobState.CANCELLING) if state in TRANSITIONS[old]],
        state,
        Actor(f"worker:{settings.NODE_NAME}"),
        text=f"{state}{': ' + reason if reason else ''}",
        where={"lease_owner": owner},
        reason=reason[:500],
        report=report or {},
        error=error or {},
        log_blob_id=log_sha256,
        lease_owner="",
        lease_expires_at=None,
        finished_at=timezone.now(),
        **done,
    )


def release_job(*, job_id: uuid.UUID, owner: str) -> Job | None:
    """Give a job back, because the worker is being stopped. The attempt does not count."""
    return _move(
        job_id,
        [JobState.RUNNING],
        JobState.QUEUED,
        Actor(f"worker:{settings.NODE_NAME}"),
        text="back in the queue, its worker is being stopped",
        where={"lease_owner": owner},
        send=False,  # this worker would take it; the reaper sends it when the lease set here ends
        attempt=F("attempt") - 1,
        lease_owner="",
        lease_expires_at=timezone.now() + timedelta(seconds=10),
        reason="Its worker was stopped; it goes on when a worker is there.",
    )


def cancel_job(*, job: Job, actor: Actor) -> Job:
    """A queued job ends at once; a running one ends when its processes are gone. Raises Conflict if it has ended."""
    now = timezone.now()
    moved = _move(
        job.pk,
        [JobState.QUEUED],
        JobState.CANCELLED,
        actor,
        text=f"cancelled by {actor.name}",
        reason=f"Cancelled by {actor.name} before it started.",
        lease_expires_at=None,
        finished_at=now,
    ) or _move(
        job.pk,
        [JobState.RUNNING],
        JobState.CANCELLING,
        actor,
        text=f"being cancelled by {actor.name}",
        reason=f"Cancelled by {actor.name}.",
    )
    if moved is not None:
        return moved
    job.refresh_from_db()
    if job.state == JobState.CANCELLING:
        return job
    raise Conflict(f"This job has already ended ({job.state}).", code="job_ended", hint="There is nothing to cancel.")


def retry_job(*, job: Job, actor: Actor) -> Job:
    """Queue a job that errored or was cancelled once more, with fresh attempts. Raises Conflict for any other."""
    moved = _move(
        job.pk,
        [JobState.ERRORED, JobState.CANCELLED],
        JobState.QUEUED,
        actor,
        text=f"queued again by {actor.name}",
        attempt=0,
        reason="",
        error={},
        progress=0.0,
        progress_text="",
        finished_at=None,
        lease_expires_at=timezone.now() + REDELIVER,
    )
    if moved is not None:
        return moved
    job.refresh_from_db()
    raise Conflict(
        f"A job that is {job.state} can't be retried.",
        code="not_retryable",
        hint="Wait until it has ended, or start a new one.",
    )


def reap_lost_jobs() -> int:
    """Requeue or end each job whose worker has not renewed its lease; send lost messages again. Idempotent.

    Returns how many jobs were lost. Called by the controller every 5 s and by beat.
    """
    now = timezone.now()
    lost = 0
    for job in Job.objects.filter(
        state__in=[JobState.RUNNING, JobState.CANCELLING], lease_expires_at__lt=now
    ).select_related("team"):
        with transaction.atomic():
            if _reap(job) is not None:
                lost += 1
                orphans.end(job)  # before the commit, after which a next attempt may start a child
    waiting = Job.objects.filter(state=JobState.QUEUED, lease_expires_at__lt=now)
    for job_id in list(waiting.values_list("pk", flat=True)):
        # The next time is far off, so that a queue that is merely long does not fill with copies.
        if Job.objects.filter(pk=job_id, state=JobState.QUEUED, lease_expires_at__lt=now).update(
            lease_expires_at=now + 5 * REDELIVER
        ):
            queue.send(job_id)
    return lost


def _reap(job: Job) -> Job | None:
    where = {"lease_owner": job.lease_owner, "lease_expires_at": job.lease_expires_at}
    gone: dict[str, Any] = {"lease_owner": "", "lease_expires_at": None, "finished_at": timezone.now()}
    silent = f"Its worker on {job.node_name} fell silent"
    if job.state == JobState.CANCELLING:
        return _move(job.pk, [JobState.CANCELLING], JobState.CANCELLED, REAPER, text="cancelled", where=where, **gone)
    if job.attempt < job.max_attempts:
        return _move(
            job.pk,
            [JobState.RUNNING],
            JobState.QUEUED,
            REAPER,
            text=f"{silent.lower()}, queued again",
            where=where,
            reason=f"{silent} in attempt {job.attempt} of {job.max_attempts}; queued again.",
            lease_owner="",
            lease_expires_at=timezone.now() + REDELIVER,
        )
    reason = f"{silent} in attempt {job.attempt} of {job.max_attempts}."
    error = {"code": "worker_lost", "message": reason, "hint": "Look at the node's memory and logs, then retry."}
    return _move(
        job.pk,
        [JobState.RUNNING],
        JobState.ERRORED,
        REAPER,
        text=reason,
        where=where,
        reason=reason,
        error=error,
        **gone,
    )


def record_progress(*, job_id: uuid.UUID, owner: str, progress: float, text: str) -> None:
    """Not an event: the running job's sockets are told by `jobs.live`, at most twice a second."""
    _held(job_id, owner).update(progress=progress, progress_text=text[:200])


def _held(job_id: uuid.UUID, owner: str) -> Any:
    return Job.objects.filter(pk=job_id, lease_owner=owner, state__in=[JobState.RUNNING, JobState.CANCELLING])


def _move(
    job_id: uuid.UUID,
    old: Iterable[JobState],
    new: JobState,
    actor: Actor,
    *,
    text: str,
    where: dict[str, Any] | None = None,
    send: bool = True,
    **fields: Any,
) -> Job | None:
    """The one place where a state changes. None if the job is in none of the `old` states (or not as in `where`)."""
    assert all(new in TRANSITIONS[state] for state in old), f"no transition to {new}"
    with transaction.atomic():
        changed = Job.objects.filter(pk=job_id, state__in=list(old), **(where or {})).update(
            state=new, updated_at=timezone.now(), **fields
        )
        if not changed:
            return None
        job: Job = Job.objects.select_related("team", "requested_by").get(pk=job_id)
        if job.kind in job_kinds:  # the plugin may have been removed since
            kinds.get(job.kind).on_state(job)
        _announce(job, actor, f"{job.title}: {text}")
        if new == JobState.QUEUED and send:
            transaction.on_commit(lambda: queue.send(job_id))
    log.info("job." + new, job=str(job_id), kind=job.kind, attempt=job.attempt, reason=job.reason)
    return job


def _announce(job: Job, actor: Actor, text: str) -> None:
    record_change(
        team=job.team,
        actor=actor,
        kind=f"job.{job.state}",
        subject_type="job",
        subject_id=job.pk,
        text=text,
        payload=dict(JobSerializer(job).data),
        changes={"state": job.state, "attempt": job.attempt, "reason": job.reason} if job.state in ENDED else {},
    )
