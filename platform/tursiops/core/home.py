"""What the console's first page shows: the one place that looks across the apps. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, Q, Sum
from django.db.models.functions import TruncMinute
from django.utils import timezone

from tursiops.accounts.models import ApiKey, Team, User
from tursiops.core.permissions import Action
from tursiops.deployments import selectors as deployments
from tursiops.deployments.derive import DeploymentState
from tursiops.deployments.models import Desired, Instance, InstanceState
from tursiops.deployments.rows import derived_state
from tursiops.deployments.shown import all_shown
from tursiops.fleet.models import Node
from tursiops.fleet.selectors import node_rows
from tursiops.jobs import selectors as jobs
from tursiops.jobs.models import Job, JobState
from tursiops.jobs.serializers import JobSerializer
from tursiops.registry.models import Version, VersionState
from tursiops.usage.models import UsageRecord
from tursiops.usage.selectors import outcomes

WINDOW = timedelta(hours=1)
RECENT_JOBS = 5
FAILED_JOBS = 5
SAMPLE = 5000  # newest requests that percentiles are taken from
_FINE = {DeploymentState.READY, DeploymentState.STOPPED}


def checklist(*, user: User, team: Team) -> list[dict[str, Any]]:
    """The steps from an empty installation to a served application, and when each was first done."""
    steps = [
        ("model", Version, "updated_at", Q(state=VersionState.READY)),
        ("deployment", Instance, "ready_at", Q(ready_at__isnull=False)),
        ("chat", UsageRecord, "started_at", Q(user_id__isnull=False, status=200)),
        ("key", ApiKey, "created_at", Q()),
    ]
    answer = []
    for key, model, moment, done in steps:
        rows: Any = model.objects.restrict(user, Action.VIEW, team)
        first = rows.filter(done).aggregate(first=Min(moment))["first"]
        answer.append({"key": key, "done": first is not None, "at": first})
    return answer


def overview(*, user: User, team: Team) -> dict[str, Any]:
    now = timezone.now()
    return {
        **_serving(user, team),
        "nodes": node_rows(list(Node.objects.prefetch_related("gpus")), user=user, team=team),
        "jobs": _jobs(user, team, now),
        "traffic": _traffic(user, team, now),
    }


def _serving(user: User, team: Team) -> dict[str, Any]:
    rows = list(deployments.deployments().restrict(user, Action.VIEW, team))
    states = [(row, derived_state(row)) for row in rows]
    wanted = [item for row in rows for item in all_shown(row.instances.all()) if item.desired == Desired.RUNNING]
    return {
        "deployments": {
            "total": len(rows),
            "ready": sum(derived.state == DeploymentState.READY for _, derived in states),
            "problems": [
                {"id": row.pk, "name": row.name, "state": str(derived.state), "reason": derived.reason}
                for row, derived in states
                if derived.state not in _FINE
            ],
        },
        "instances": {"ready": sum(item.state == InstanceState.READY for item in wanted), "total": len(wanted)},
    }


def _jobs(user: User, team: Team, now: datetime) -> dict[str, Any]:
    failed = Q(state=JobState.ERRORED, finished_at__gte=now - timedelta(days=1))
    counts = Job.objects.restrict(user, Action.VIEW, team).aggregate(
        running=Count("pk", filter=Q(state__in=[JobState.RUNNING, JobState.CANCELLING])),
        failed_24h=Count("pk", filter=failed),
    )
    rows = jobs.jobs().restrict(user, Action.VIEW, team)
    return {
        **counts,
        "recent": JobSerializer(rows[:RECENT_JOBS], many=True).data,
        "failed": JobSerializer(rows.filter(failed).order_by("-finished_at")[:FAILED_JOBS], many=True).data,
    }


def _traffic(user: User, team: Team, now: datetime) -> dict[str, Any]:
    since = (now - WINDOW).replace(second=0, microsecond=0)
    records: Any = UsageRecord.objects.restrict(user, Action.VIEW, team).filter(started_at__gte=since)
    totals = records.order_by().aggregate(
        requests=Count("pk"),
        **outcomes(),
        prompt_tokens=Sum("prompt_tokens", default=0),
        completion_tokens=Sum("completion_tokens", default=0),
    )
    newest = records.filter(ttft_ms__isnull=False).order_by("-started_at")
    ttft = sorted(newest.values_list("ttft_ms", flat=True)[:SAMPLE])
    seconds = (now - since).total_seconds()
    return {
        "window_s": round(seconds),
        **totals,
        "tokens_per_s": round(totals["completion_tokens"] / seconds, 2),
        "ttft_ms": {"p50": percentile(ttft, 0.50), "p95": percentile(ttft, 0.95)},
        "series": _per_minute(records, since, now),
    }


def _per_minute(records: Any, since: datetime, now: datetime) -> list[dict[str, Any]]:
    found = (
        records.order_by()
        .annotate(at=TruncMinute("started_at"))
        .values("at")
        .annotate(requests=Count("pk"), completion_tokens=Sum("completion_tokens"))
    )
    by_minute = {row["at"]: row for row in found}
    series, at = [], since
    while at <= now:
        series.append(by_minute.get(at) or {"at": at, "requests": 0, "completion_tokens": 0})
        at += timedelta(minutes=1)
    return series


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value with at least `share` of the values at or below it; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, -(-int(share * 1_000_000) * len(ordered) // 1_000_000) - 1)]
