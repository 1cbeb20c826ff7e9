"""Reads. Querysets come unrestricted; views apply `restrict`."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Prefetch, Subquery

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.evaluations.models import (
    Baseline,
    ExternalEndpoint,
    Gate,
    Plan,
    Run,
    RunFile,
    RunState,
    Schedule,
    Suite,
)
from tursiops.evaluations.targets import Target
from tursiops.jobs.models import JobMetric

MOST_POINTS = 5000
_RELATED = ("team", "suite", "suite_version", "deployment", "endpoint", "version__model", "job", "requested_by")


def suites() -> RestrictedQuerySet:
    return Suite.objects.select_related("team", "current")


def suite_versions(suite: Suite) -> Any:
    return suite.versions.select_related("created_by")


def endpoints() -> RestrictedQuerySet:
    return ExternalEndpoint.objects.select_related("team")


def runs() -> RestrictedQuerySet:
    """As list rows show them. Result documents stay in the database: they can be megabytes."""
    return Run.objects.select_related(*_RELATED).defer("results")


def runs_in_full() -> RestrictedQuerySet:
    rows: RestrictedQuerySet = Run.objects.select_related(*_RELATED).prefetch_related(
        Prefetch("files", RunFile.objects.select_related("blob"))
    )
    return rows


def on_target(target: Target) -> Any:
    return runs().filter(deployment=target.deployment, endpoint=target.endpoint)


def schedules() -> RestrictedQuerySet:
    newest = Run.objects.filter(schedule=OuterRef("schedule")).order_by("-created_at").values("pk")[:1]
    last = runs().filter(pk=Subquery(newest))
    rows: RestrictedQuerySet = Schedule.objects.select_related(
        "team", "suite", "deployment", "endpoint", "owner", "task"
    ).prefetch_related(Prefetch("runs", last))
    return rows


def baselines() -> RestrictedQuerySet:
    return Baseline.objects.select_related("team", "suite", "deployment", "endpoint", "run").defer("run__results")


def gates() -> RestrictedQuerySet:
    return Gate.objects.select_related("team", "model", "deployment", "suite")


def plans() -> RestrictedQuerySet:
    return Plan.objects.select_related("team", "version__model", "created_by")


def evidence(suite: Suite, version_id: uuid.UUID, since: datetime) -> Run | None:
    """The newest run on that version that ended by itself, of the suite as it is now: an earlier one asked another
    question."""
    found = _completed(suite, version_id, since).filter(suite_version=suite.current_id)
    run: Run | None = found.order_by("-finished_at").first()
    return run


def outdated_evidence(suite: Suite, version_id: uuid.UUID, since: datetime) -> bool:
    """There is a run on that version, of the suite as it was before its last change."""
    return bool(_completed(suite, version_id, since).exclude(suite_version=suite.current_id).exists())


def _completed(suite: Suite, version_id: uuid.UUID, since: datetime) -> Any:
    return runs().filter(suite=suite, version_id=version_id, state=RunState.COMPLETED, finished_at__gte=since)


def points(run: Run, after: int) -> list[JobMetric]:
    """What the run's job has measured so far, for charts while it runs: those with an id above `after`."""
    if run.job_id is None:
        return []
    return list(JobMetric.objects.filter(job=run.job_id, pk__gt=after).order_by("pk")[:MOST_POINTS])
