from __future__ import annotations

import uuid
from typing import Any

from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.jobs.models import Job
from tursiops.registry.models import Alias, LineageEdge, Model, Version


def versions() -> RestrictedQuerySet:
    """Versions as their rows show them: with files, the model's name, and the id of the newest import."""
    newest = Job.objects.filter(subject_type="version", subject_id=OuterRef("pk")).order_by("-created_at")
    rows: RestrictedQuerySet = (
        Version.objects.select_related("model")
        .annotate(job=Subquery(newest.values("id")[:1]))
        .prefetch_related("files__blob")
    )
    return rows


def models() -> RestrictedQuerySet:
    """Models as their rows show them, newest first."""
    rows: RestrictedQuerySet = Model.objects.prefetch_related(
        Prefetch("versions", versions()), Prefetch("aliases", Alias.objects.select_related("version").order_by("name"))
    ).order_by("-created_at")
    return rows


def lineage(model: Model, visible: QuerySet[Any]) -> dict[str, list[dict[str, Any]]]:
    """Versions of the model and of what they were made from or into, and the edges. `visible` limits the versions."""
    edges = list(
        LineageEdge.objects.filter(Q(parent__model=model) | Q(child__model=model)).filter(
            parent__in=visible, child__in=visible
        )
    )
    ids: set[uuid.UUID] = {end for edge in edges for end in (edge.parent_id, edge.child_id)}
    nodes = Version.objects.filter(Q(model=model) | Q(pk__in=ids)).select_related("model").order_by("created_at")
    return {
        "nodes": [{"version": str(node.pk), "label": str(node)} for node in nodes],
        "edges": [
            {
                "id": str(edge.pk),
                "kind": edge.kind,
                "parent": str(edge.parent_id),
                "child": str(edge.child_id),
                "job": str(edge.job_id) if edge.job_id else None,
                "changes": edge.changes,
            }
            for edge in edges
        ],
    }
