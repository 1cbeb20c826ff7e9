"""What the nodes write: the observed side of an instance. Every write is a compare-and-set on state and epoch.

So a late word of a node that has been replaced, or of an engine's earlier start, changes nothing.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from tursiops.core import events
from tursiops.deployments.models import Desired, Instance, InstanceState
from tursiops.deployments.rows import deployment_row
from tursiops.fleet import wake
from tursiops.secrets import seal_instance_token

SEEN_EVERY_S = 4.0

_VERBS = {
    InstanceState.PENDING: "is created",
    InstanceState.SCHEDULED: "waits to start",
    InstanceState.STARTING: "starts",
    InstanceState.READY: "is ready",
    InstanceState.DRAINING: "drains",
    InstanceState.STOPPED: "has stopped",
    InstanceState.UNREACHABLE: "is unreachable",
    InstanceState.FAILED: "has failed",
}


def instance_observed(*, instance: Instance, actor: str, changes: dict[str, Any]) -> bool:
    """Write what was observed; an event if the state changed. False if the row has moved on meanwhile.

    `instance` is updated in place when the write took effect.
    """
    now = timezone.now()
    if not changes:
        stale = instance.seen_at is None or (now - instance.seen_at).total_seconds() >= SEEN_EVERY_S
        return _write(instance, {"seen_at": now}) if stale else True
    if changes.get("state", instance.state) == instance.state:
        return _write(instance, {"seen_at": now, **changes})
    with transaction.atomic():
        if not _write(instance, {"seen_at": now, **changes}):
            return False
        record_instance_event(instance, actor=actor)
    wake.wake(wake.CONTROLLER)
    return True


def instance_starting(*, instance: Instance, token: str, actor: str) -> bool:
    """Claim the next start: epoch + 1 with a new token. False if the row has moved on; then nothing may start."""
    changes = {
        "epoch": instance.epoch + 1,
        "token_encrypted": seal_instance_token(token),
        "state": InstanceState.STARTING,
        "reason": "The engine is being started.",
        "progress": 0.0,
        "pid": 0,
        "port": 0,
        "next_start_at": None,
        "ready_at": None,
        "facts": {},
        "seen_at": timezone.now(),
    }
    with transaction.atomic():
        if not _write(instance, changes, desired=Desired.RUNNING):
            return False
        record_instance_event(instance, actor=actor)
    wake.wake(wake.CONTROLLER)
    return True


def record_instance_event(instance: Instance, *, actor: str, kind: str = "", verb: str = "") -> None:
    """The event of an instance's new state, told as its deployment's. Inside the transaction of the change."""
    deployment = instance.deployment
    verb = verb or _VERBS[InstanceState(instance.state)]
    text = f"{deployment.name} {instance.role} {instance.index} {verb}"
    events.record(
        team=deployment.team,
        kind=kind or f"instance.{instance.state}",
        subject_type="deployment",
        subject_id=deployment.pk,
        text=f"{text}: {instance.reason}" if instance.reason else f"{text}.",
        payload=deployment_row(deployment),
        actor=actor,
    )


def _write(instance: Instance, changes: dict[str, Any], **also: Any) -> bool:
    rows = Instance.objects.filter(
        pk=instance.pk, epoch=instance.epoch, state=instance.state, node=instance.node, **also
    )
    if not rows.update(**changes):
        return False
    for name, value in changes.items():
        setattr(instance, name, value)
    return True
