"""Carries out the actions of a plan, each in a transaction of its own and each a compare-and-set.

An action that has been overtaken (by a user, a node, another controller) changes nothing; the next plan sees why.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import TursiopsError
from tursiops.deployments import plan
from tursiops.deployments.models import Deployment, Desired, Instance, InstanceState
from tursiops.deployments.observed import record_instance_event
from tursiops.deployments.rooms import requirement_of, rooms
from tursiops.deployments.rows import deployment_row
from tursiops.fleet import wake
from tursiops.fleet.models import Node
from tursiops.fleet.placement import Choice, Placement, Requirement, place

ACTOR = "controller"
_REASON_EVERY_S = 5.0  # a pending instance's reason holds figures that change with each measurement


def apply(deployment: Deployment, action: plan.Action) -> None:
    match action:
        case plan.Create():
            create_instance(deployment, action.role, action.index)
        case plan.Place():
            place_instance(deployment, action.instance)
        case plan.Stop():
            stop_instance(action.instance, action.reason)
        case plan.Remove():
            remove_instance(action.instance)
        case plan.RemoveDeployment():
            remove_deployment(deployment)


def create_instance(deployment: Deployment, role: str, index: int) -> None:
    try:
        with transaction.atomic():
            fresh = Deployment.objects.select_for_update().get(pk=deployment.pk)
            if fresh.desired != Desired.RUNNING or fresh.current_id != deployment.current_id:
                return
            instance = Instance.objects.create(
                deployment=deployment,
                revision_id=fresh.current_id,
                role=role,
                index=index,
                reason="It looks for a node.",
            )
            record_instance_event(instance, actor=ACTOR)
    except (IntegrityError, Deployment.DoesNotExist):  # made by another controller, or deleted meanwhile
        return


def place_instance(deployment: Deployment, instance_id: uuid.UUID) -> None:
    """Give a pending instance a node, or the reasons why there is none."""
    instance = Instance.objects.select_related("revision__version__model", "deployment__team", "node").filter(
        pk=instance_id, node=None, desired=Desired.RUNNING
    )
    row = instance.first()
    if row is None:
        return
    try:
        requirement = requirement_of(row.revision, role=row.role, served_name=deployment.name)
        outcome = place(requirement, rooms(deployment=deployment, revision=row.revision, now=timezone.now()))
    except TursiopsError as error:
        _keep_pending(row, {"chosen": None, "reason": error.message, "rejected": []})
        return
    if outcome.chosen is None:
        room = _who_must_go(deployment, row, requirement, outcome)
        _keep_pending(row, {**outcome.as_dict(), "makes_room": str(room) if room else None})
        return
    _schedule(row, outcome, outcome.chosen)


def _schedule(row: Instance, outcome: Placement, chosen: Choice) -> None:
    node = Node.objects.get(name=chosen.node)
    changes: dict[str, Any] = {
        "node": node,
        "gpu_indices": list(chosen.gpu_indices),
        "placement": outcome.as_dict(),
        "state": InstanceState.SCHEDULED,
        "reason": outcome.reason[:500],
    }
    with transaction.atomic():
        placed = Instance.objects.filter(pk=row.pk, node=None, desired=Desired.RUNNING).update(**changes)
        if not placed:
            return
        for name, value in changes.items():
            setattr(row, name, value)
        record_instance_event(row, actor=ACTOR)
    wake.wake(wake.node_channel(node.name))


def _keep_pending(row: Instance, placement: dict[str, Any]) -> None:
    """Write why it waits; an event only where other nodes or filters are the cause than before."""
    before, now = row.placement, timezone.now()
    same = _causes(before) == _causes(placement) and before.get("makes_room") == placement.get("makes_room")
    fresh = row.seen_at is not None and (now - row.seen_at).total_seconds() < _REASON_EVERY_S
    if same and (fresh or before == placement):
        return
    row.placement, row.reason, row.seen_at = placement, placement["reason"][:500], now
    with transaction.atomic():
        Instance.objects.filter(pk=row.pk, node=None).update(placement=placement, reason=row.reason, seen_at=now)
        if not same:
            record_instance_event(row, actor=ACTOR)


def _causes(placement: dict[str, Any]) -> Any:
    rejected = placement.get("rejected")
    return None if rejected is None else sorted((item["node"], item.get("filter", "")) for item in rejected)


def _who_must_go(
    deployment: Deployment, row: Instance, requirement: Requirement, outcome: Placement
) -> uuid.UUID | None:
    """An instance of an older revision whose end would make room, where only memory is missing."""
    if not outcome.short_of_memory:
        return None
    older = deployment.instances.filter(role=row.role, desired=Desired.RUNNING).exclude(revision=row.revision)
    for old in older.exclude(node=None).order_by("-index"):
        space = rooms(deployment=deployment, revision=row.revision, now=timezone.now(), without=[old.pk])
        if place(requirement, space).chosen is not None:
            return uuid.UUID(str(old.pk))
    return None


def stop_instance(instance_id: uuid.UUID, reason: str) -> None:
    with transaction.atomic():
        row = (
            Instance.objects.select_related("deployment__team", "node", "revision")
            .filter(pk=instance_id, desired=Desired.RUNNING)
            .first()
        )
        if row is None:
            return
        if not Instance.objects.filter(pk=row.pk, desired=Desired.RUNNING).update(
            desired=Desired.STOPPED, reason=reason[:500]
        ):
            return
        row.desired, row.reason = Desired.STOPPED, reason[:500]
        record_instance_event(row, actor=ACTOR, kind="instance.stopping", verb="is to stop")
    if row.node is not None:
        wake.wake(wake.node_channel(row.node.name))


def remove_instance(instance_id: uuid.UUID) -> None:
    with transaction.atomic():
        row = (
            Instance.objects.select_related("deployment__team", "node", "revision")
            .filter(pk=instance_id)
            .exclude(desired=Desired.RUNNING)
            .first()
        )
        if row is None:
            return
        row_id = row.pk
        row.delete()
        row.pk = row_id
        record_instance_event(row, actor=ACTOR, kind="instance.removed", verb="is gone")


def remove_deployment(deployment: Deployment) -> None:
    """The last step of a delete: no instance is left. Its audit entries, events and usage stay."""
    with transaction.atomic():
        row = Deployment.objects.select_for_update().filter(pk=deployment.pk, desired=Desired.DELETED).first()
        if row is None or row.instances.exists():
            return
        record_change(
            team=row.team,
            actor=Actor(ACTOR),
            kind="deployment.removed",
            subject_type="deployment",
            subject_id=row.pk,
            text=f"Deployment {row.name} is gone.",
            payload=deployment_row(row),
        )
        row.current = None
        row.save(update_fields=["current"])
        row.delete()
