"""The state of a deployment, derived from its instances and never stored: what is shown can't be out of date."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tursiops.deployments.models import Desired, InstanceState


class DeploymentState(enum.StrEnum):
    READY = "ready"
    DEGRADED = "degraded"
    STARTING = "starting"
    STOPPED = "stopped"
    FAILED = "failed"
    DELETING = "deleting"


@dataclass(frozen=True)
class Derived:
    state: DeploymentState
    reason: str  # one sentence
    ready: dict[str, int]  # per role


def derive(*, desired: str, replicas: dict[str, int], current_id: Any, instances: Iterable[Any]) -> Derived:
    """`instances`: rows (or views) with role, index, state, reason, desired and revision_id."""
    rows = list(instances)
    wanted = {role: count for role, count in replicas.items() if count > 0}
    serving = [row for row in rows if row.state == InstanceState.READY]
    ready = {role: sum(row.role == role for row in serving) for role in {*replicas, *(row.role for row in rows)}}
    if desired == Desired.DELETED:
        return Derived(DeploymentState.DELETING, _ending(rows), ready)
    if desired == Desired.STOPPED or not wanted:
        if rows:
            return Derived(DeploymentState.STOPPED, _ending(rows), ready)
        why = "It is stopped; start it to serve." if wanted else "It has no replicas; scale it up to serve."
        return Derived(DeploymentState.STOPPED, why, ready)
    short = {role: count - ready.get(role, 0) for role, count in wanted.items() if ready.get(role, 0) < count}
    kept = [row for row in rows if row.desired == Desired.RUNNING]
    old = [row for row in kept if row.revision_id != current_id]
    trouble = _trouble(kept)
    if not short:
        if old:
            return Derived(
                DeploymentState.READY, f"A new revision rolls out; {len(old)} of the one before to go.", ready
            )
        return Derived(DeploymentState.READY, "", ready)
    missing = ", ".join(f"{ready.get(role, 0)} of {wanted[role]} {role}" for role in short)
    if all(ready.get(role, 0) for role in wanted):
        return Derived(DeploymentState.DEGRADED, f"{missing} ready. {trouble}".strip(), ready)
    if _all_failed(kept, wanted, short):
        return Derived(DeploymentState.FAILED, trouble or f"{missing} ready.", ready)
    return Derived(DeploymentState.STARTING, f"{missing} ready. {trouble}".strip(), ready)


def _ending(rows: list[Any]) -> str:
    return f"{len(rows)} {'instance ends its' if len(rows) == 1 else 'instances end their'} requests."


def _trouble(rows: list[Any]) -> str:
    """The reason of the worst-off instance."""
    worst = [InstanceState.FAILED, InstanceState.UNREACHABLE, InstanceState.PENDING, InstanceState.SCHEDULED]
    worst.append(InstanceState.STARTING)
    for state in worst:
        for row in rows:
            if row.state == state and row.reason:
                return f"{row.role} {row.index}: {row.reason}"
    return ""


def _all_failed(rows: list[Any], wanted: dict[str, int], short: dict[str, int]) -> bool:
    """True if some role that nothing serves has no instance left that could still come up."""
    for role in short:
        of_role = [row for row in rows if row.role == role]
        if len(of_role) >= wanted[role] and all(row.state == InstanceState.FAILED for row in of_role):
            return True
    return False
