"""Sums of usage, by key, deployment or day."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from tursiops.accounts.models import ApiKey, Team, User
from tursiops.core.permissions import Action
from tursiops.usage.models import UsageRecord

GROUPS = ("key", "deployment", "day")
REJECTED = Q(status__gte=400, status__lt=499)  # the client's mistake; 499: it left, which is nobody's
FAILED = Q(status__gte=500)  # the service's; a stream that broke off is recorded as 502


def sums(
    *, user: Any, team: Team, since: datetime | None = None, until: datetime | None = None, group: str = "day"
) -> dict[str, Any]:
    """{"rows": [{group, label, …}], "totals": {…}}, rows by tokens, days in their order. `until` is exclusive."""
    records = UsageRecord.objects.restrict(user, Action.VIEW, team)
    if since is not None:
        records = records.filter(started_at__gte=since)
    if until is not None:
        records = records.filter(started_at__lt=until)
    rows = {"key": _by_key, "deployment": _by_deployment, "day": _by_day}[group](records)
    return {"rows": rows, "totals": _zero_for_none(records.order_by().aggregate(**_measures()))}


def outcomes() -> dict[str, Any]:
    """Counts of what did not succeed, by whose fault. `errors` is both, as it was before they were told apart."""
    return {
        "errors": Count("pk", filter=REJECTED | FAILED),
        "rejected": Count("pk", filter=REJECTED),
        "failed": Count("pk", filter=FAILED),
    }


def _measures() -> dict[str, Any]:
    return {
        "requests": Count("pk"),
        **outcomes(),
        "prompt_tokens": Sum("prompt_tokens"),
        "cached_tokens": Sum("cached_tokens"),
        "completion_tokens": Sum("completion_tokens"),
    }


def _by_day(records: QuerySet[UsageRecord]) -> list[dict[str, Any]]:
    found: Any = records.annotate(day=TruncDate("started_at")).values("day").annotate(**_measures()).order_by("day")
    return [_row(entry, str(entry.pop("day"))) for entry in found]


def _by_deployment(records: QuerySet[UsageRecord]) -> list[dict[str, Any]]:
    found: Any = records.values("deployment_id", "served_name").annotate(**_measures()).order_by("-completion_tokens")
    return [_row(entry, str(entry.pop("deployment_id") or ""), entry.pop("served_name")) for entry in found]


def _by_key(records: QuerySet[UsageRecord]) -> list[dict[str, Any]]:
    """Requests of the playground have a user instead of a key."""
    found: Any = list(records.values("api_key_id", "user_id").annotate(**_measures()).order_by("-completion_tokens"))
    keys = _names(ApiKey, [entry["api_key_id"] for entry in found], "name")
    users = _names(User, [entry["user_id"] for entry in found], "username")
    rows = []
    for entry in found:
        key, user = entry.pop("api_key_id"), entry.pop("user_id")
        label = keys.get(key, "deleted key") if key else f"playground: {users.get(user, 'deleted user')}"
        rows.append(_row(entry, str(key or user or ""), label))
    return rows


def _names(model: Any, ids: list[uuid.UUID | None], field: str) -> dict[uuid.UUID, str]:
    return dict(model.objects.filter(pk__in=[pk for pk in ids if pk]).values_list("pk", field))


def _row(measures: dict[str, Any], group: str, label: str = "") -> dict[str, Any]:
    return {"group": group, "label": label or group, **_zero_for_none(measures)}


def _zero_for_none(measures: dict[str, Any]) -> dict[str, int]:
    return {name: value or 0 for name, value in measures.items()}
