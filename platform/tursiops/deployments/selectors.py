"""Reads. Querysets come unrestricted; views apply `restrict`."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Prefetch

from tursiops.accounts.models import Team
from tursiops.deployments.models import Deployment, Desired, Instance


def deployments() -> Any:
    """Those that are not gone, with what a list row shows."""
    instances = Instance.objects.select_related("node", "revision")
    return (
        Deployment.objects.exclude(desired=Desired.DELETED, instances=None)
        .select_related("team", "current__version__model", "current__draft_version__model", "current__created_by")
        .prefetch_related(Prefetch("instances", queryset=instances))
    )


def live_deployments() -> list[Deployment]:
    """All teams', for the controller: two queries, whatever their number."""
    rows = Deployment.objects.exclude(current=None).select_related("team", "current__version__model")
    instances = Instance.objects.select_related("node", "revision")
    return list(rows.prefetch_related(Prefetch("instances", queryset=instances)))


def instances_named(team: Team, name: str) -> list[uuid.UUID]:
    """Ids of the instances of the team's deployment of that name; none where there is no such deployment."""
    row = Deployment.objects.filter(team=team, name=name).exclude(desired=Desired.DELETED).first()
    return list(row.instances.values_list("pk", flat=True)) if row else []


def revisions(deployment: Deployment) -> Any:
    return deployment.revisions.select_related("version__model", "draft_version__model", "created_by")


def instances() -> Any:
    related = ("deployment__team", "deployment__current__version__model", "node", "revision")
    return Instance.objects.select_related(*related)
