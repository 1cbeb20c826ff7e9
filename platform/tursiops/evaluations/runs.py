"""Runs: asked for, put in line, followed by what their job does, and at last compared with their baseline.

One target has one run at a time: two load tests at once spoil both. The others wait, and say for whom.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from tursiops.accounts.models import Team, User
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.deployments.models import Deployment
from tursiops.evaluations import access, baselines, evidence, figures, plans, results, rows, selectors, specs, targets
from tursiops.evaluations.models import ON_TARGET, UNENDED, ExternalEndpoint, Run, RunState, Schedule, Suite, Verdict
from tursiops.evaluations.targets import Target
from tursiops.jobs import queue
from tursiops.jobs import services as jobs
from tursiops.jobs.models import ENDED, Job, JobState

KIND = "evaluations.run"
EVALUATOR = Actor("evaluator")
_NAMED = 3  # regressions in one sentence


def create_run(
    *,
    suite: Suite,
    target: Target,
    actor: Actor,
    seed: int | None = None,
    schedule: Schedule | None = None,
    idempotency_key: str | None = None,
) -> Run:
    """Start a run, or put it in line behind the one on the same target. The caller has seen that all is of his team.

    With a key that the team has used before, the run of that time is returned. Raises Conflict where the deployment
    does not run, TursiopsError where the endpoint's address is not allowed (any more) or the suite asks deployments
    beside it.
    """
    team = suite.team
    past = _past(team, idempotency_key)
    if past is not None:
        return past
    if actor.user is None:
        raise TursiopsError("A run belongs to a person: its key has their rights.")
    version = suite.current
    assert version is not None  # a suite is made with its first
    targets.require_one_key(target, specs.served_names(version.spec))
    if target.deployment is not None:
        targets.require_running(target.deployment)
    elif target.endpoint is not None:
        targets.check_url(target.endpoint.url)
    with transaction.atomic():
        _lock(target)
        past = _past(team, idempotency_key)
        if past is not None:  # the same request, sent at the same time, came first
            return past
        before = selectors.on_target(target).filter(state__in=UNENDED).order_by("-created_at").first()
        run: Run = Run.objects.create(
            team=team,
            suite=suite,
            suite_version=version,
            **target.fields,
            target_kind=target.kind,
            target_name=target.name,
            schedule=schedule,
            requested_by=actor.user,
            idempotency_key=idempotency_key,
            seed=seed,
            reason=f"It waits for the run of {before.suite.name}: two at once would spoil both." if before else "",
        )
        tell(run, actor, "waits" if before else "was asked for")
        _start_next(target)
    run.refresh_from_db()
    return run


def _past(team: Team, idempotency_key: str | None) -> Run | None:
    return Run.objects.filter(team=team, idempotency_key=idempotency_key).first() if idempotency_key else None


@transaction.atomic
def start_next(target: Target) -> Run | None:
    """Queue the first run in line, where the target is free. Idempotent."""
    _lock(target)
    return _start_next(target)


def _lock(target: Target) -> None:
    if target.deployment is not None:
        Deployment.objects.select_for_update().filter(pk=target.deployment.pk).first()
    elif target.endpoint is not None:
        ExternalEndpoint.objects.select_for_update().filter(pk=target.endpoint.pk).first()


def _start_next(target: Target) -> Run | None:
    """The target is locked."""
    line = selectors.on_target(target)
    if line.filter(state__in=ON_TARGET).exists():
        return None
    run: Run | None = line.filter(state=RunState.WAITING).order_by("created_at").first()
    if run is None:
        return None
    run.job = jobs.enqueue_job(
        team=run.team,
        actor=actor_of(run.requested_by),
        kind=KIND,
        title=f"Evaluate {run.target_name} with {run.suite.name}",
        spec={"run": str(run.pk)},
        subject_type="evaluation_run",
        subject_id=run.pk,
    )
    run.state, run.reason = RunState.QUEUED, ""
    run.save(update_fields=["job", "state", "reason", "updated_at"])
    tell(run, EVALUATOR, "is queued")
    return run


def start_waiting() -> int:
    """A chore of the leading controller: lines that nobody moved on, because who should have was killed.

    Returns how many runs were started or, their target being gone, ended.
    """
    moved = 0
    seen = set()
    for run in selectors.runs().filter(state=RunState.WAITING).order_by("created_at"):
        target = targets.of(run)
        if target is None:
            moved += _end_without_target(run)
        elif target not in seen:
            seen.add(target)
            moved += start_next(target) is not None
    return moved


@transaction.atomic
def _end_without_target(run: Run) -> int:
    reason = f"{run.target_name} was deleted before its turn came."
    ended = Run.objects.filter(pk=run.pk, state=RunState.WAITING).update(
        state=RunState.ERRORED, reason=reason, finished_at=timezone.now(), updated_at=timezone.now()
    )
    if ended:
        run.refresh_from_db()
        tell(run, EVALUATOR, "was not made: its target is gone")
        plans.follow(run)
    return ended


def cancel_run(*, run: Run, actor: Actor) -> Run:
    """What was measured until then is kept. Raises Conflict if it has ended."""
    now = timezone.now()
    with transaction.atomic():
        waited = Run.objects.filter(pk=run.pk, state=RunState.WAITING).update(
            state=RunState.CANCELLED, reason=f"Cancelled by {actor.name}.", finished_at=now, updated_at=now
        )
        if waited:
            run.refresh_from_db()
            tell(run, actor, "was cancelled")
            plans.follow(run)
            return run
    run.refresh_from_db()
    if run.job is None or run.state not in ON_TARGET:
        raise Conflict(
            f"This run has already ended ({run.state}).", code="run_ended", hint="There is nothing to cancel."
        )
    jobs.cancel_job(job=run.job, actor=actor)
    run.refresh_from_db()
    return run


@transaction.atomic
def delete_run(*, run: Run, actor: Actor) -> None:
    """With its files. Raises Conflict while it is at work, or where it is a baseline; NotAdmin where a gate rests on
    its suite."""
    if run.state in UNENDED:
        raise Conflict(f"This run is {run.state}.", code="in_use", hint="Cancel it first.")
    if run.baselines.exists():
        raise Conflict("This run is a baseline.", code="in_use", hint="Set another baseline, or remove it, first.")
    evidence.require_admin(run.suite, actor, "deletes its runs")
    record_change(
        team=run.team,
        actor=actor,
        kind="evaluation.deleted",
        subject_type="evaluation_run",
        subject_id=run.pk,
        text=f"the run of {run} was deleted",
        payload={"id": str(run.pk), "suite": str(run.suite_id)},
    )
    run.delete()
    transaction.on_commit(queue.send_garbage_collection)


def on_state(job: Job) -> None:
    """The run follows its job, in the transaction of each change of the job's state.

    Raises Conflict, and so keeps the job as it is, where an ended run would be retried beside another.
    """
    run = selectors.runs().filter(job=job).first()
    if run is None:
        return
    target = targets.of(run)
    if job.state == JobState.QUEUED and run.state not in UNENDED and target is not None:
        _refuse_beside_another(run, target)
    run.job = job  # as just written
    if job.state != JobState.RUNNING and job.state != JobState.CANCELLING:
        access.close(run)  # a lost worker has left its key
    now = timezone.now()
    if job.state in ENDED:
        if not run.results:  # its worker was lost before it could
            results.take_documents(run)
        run.state, run.finished_at = _ended(run, job), now
    else:
        run.state = RunState.QUEUED if job.state == JobState.QUEUED else RunState.RUNNING
        run.finished_at = None
        run.started_at = run.started_at or (now if run.state == RunState.RUNNING else None)
    run.reason = job.reason
    if run.state == RunState.COMPLETED:
        run.verdict = str(job.report.get("verdict", Verdict.UNDETERMINED))
        _compare(run)
    run.save(
        update_fields=[
            "state",
            "verdict",
            "reason",
            "regressions",
            "baseline",
            "started_at",
            "finished_at",
            "updated_at",
        ]
    )
    tell(run, EVALUATOR, f"is {run.state}" + (f": {run.verdict}" if run.verdict else ""))
    if run.regressions and run.state == RunState.COMPLETED:
        _alert(run)
    if job.state in ENDED:
        plans.follow(run)
        if target is not None:
            transaction.on_commit(lambda: start_next(target))


def _refuse_beside_another(run: Run, target: Target) -> None:
    """A run that is retried did not stand in line: it yields to the one that did."""
    _lock(target)
    other = selectors.on_target(target).filter(state__in=ON_TARGET).exclude(pk=run.pk).first()
    if other is not None:
        raise Conflict(
            f"The run of {other.suite.name} is on {target.name}: two at once would spoil both.",
            code="target_busy",
            hint="Wait for its end, then retry this one.",
        )


def _ended(run: Run, job: Job) -> RunState:
    if job.state == JobState.CANCELLED:
        return RunState.CANCELLED
    measured = bool(run.results)
    if job.state == JobState.ERRORED:
        return RunState.INCOMPLETE if measured else RunState.ERRORED
    return RunState.COMPLETED if job.report.get("complete", True) else RunState.INCOMPLETE


def _compare(run: Run) -> None:
    """Mark regressions; a run of which nothing failed becomes the baseline without any, unless a person chose one.

    Runs of two versions of a suite measured two things: they are not compared.
    """
    target = targets.of(run)
    if target is None:
        return
    found = baselines.of(run.suite, target)
    if found is not None and found.run_id != run.pk:
        if found.run.suite_version_id == run.suite_version_id:
            run.baseline = found.run
            run.regressions = figures.regressions(run.figures, found.run.figures)
        elif found.by_hand:
            then, now = found.run.suite_version.number, run.suite_version.number
            told = f"Compared with nothing: the baseline is of version {then} of the suite, this run of version {now}."
            run.reason = f"{told} {run.reason}".strip()[:500]
    good = results.nothing_failed(run) and bool(run.figures) and not run.regressions
    if good and run.suite.auto_baseline and (found is None or not found.by_hand):
        baselines.follow(run, target)


def _alert(run: Run) -> None:
    told = [
        f"{item['figure']} is {figures.shown(item['value'], item['unit'])}, {item['change']:+.1%} from "
        f"{figures.shown(item['baseline'], item['unit'])}"
        for item in run.regressions[:_NAMED]
    ]
    more = f", and {len(run.regressions) - _NAMED} more" if len(run.regressions) > _NAMED else ""
    tell(run, EVALUATOR, f"has become worse: {'; '.join(told)}{more}", kind="evaluation.regressed")


def actor_of(user: User | None) -> Actor:
    """On behalf of whom a run works; its key has this person's rights."""
    return Actor(user.get_username(), user) if user is not None else EVALUATOR


def tell(run: Run, actor: Actor, what: str, *, kind: str = "") -> None:
    record_change(
        team=run.team,
        actor=actor,
        kind=kind or f"evaluation.{run.state}",
        subject_type="evaluation_run",
        subject_id=run.pk,
        text=f"{run} {what}",
        payload=rows.run_row(run),
        changes=_changes(run),
    )


def _changes(run: Run) -> dict[str, Any]:
    return {"state": run.state, "verdict": run.verdict, "reason": run.reason} if run.state not in UNENDED else {}
