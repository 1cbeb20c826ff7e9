from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.jobs.models import ENDED, Job
from tursiops.quantization.models import Quantization
from tursiops.registry import comparisons
from tursiops.registry.models import Version


def quantizations() -> RestrictedQuerySet:
    """As their rows show them, without what is long."""
    rows: RestrictedQuerySet = quantizations_in_full().defer("report")
    return rows


def quantizations_in_full() -> RestrictedQuerySet:
    rows: RestrictedQuerySet = Quantization.objects.select_related(
        "base__model", "version__model", "job__requested_by", "job__team"
    )
    return rows


def comparison(row: Quantization) -> uuid.UUID | None:
    """The newest job that compared the version with its base, layer by layer."""
    asked = {"spec__other__version": str(row.version_id), "spec__reference__version": str(row.base_id)}
    jobs = Job.objects.filter(team=row.base.model.team_id, kind=comparisons.KIND, **asked)
    found: uuid.UUID | None = jobs.order_by("-created_at").values_list("pk", flat=True).first()
    return found


def of_base(base: Version, visible: QuerySet[Any]) -> list[Quantization]:
    """All that was made of it and is there, or is being made, oldest first. `visible` limits them."""
    return [row for row in visible.filter(base=base) if row.version_id or row.job.state not in ENDED]
