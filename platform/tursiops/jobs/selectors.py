from __future__ import annotations

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.jobs.models import Job


def jobs() -> RestrictedQuerySet:
    return Job.objects.select_related("requested_by")
