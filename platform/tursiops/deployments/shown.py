"""What people are shown of an instance: its row, unless nobody has vouched for it within the detection window.

The controller marks instances of silent nodes, but it may be down or between two leaders just then. What is shown is
decided at each read, so that the engine of a dead machine is never shown as running, whoever else has died with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from tursiops.deployments.models import Instance, InstanceState
from tursiops.fleet.health import NodeHealth, node_health

_RUNS = {InstanceState.STARTING, InstanceState.READY, InstanceState.DRAINING}


@dataclass(frozen=True)
class Shown:
    """As `derive` reads it."""

    role: str
    index: int
    state: str
    reason: str
    desired: str
    revision_id: Any


def shown(instance: Instance, health: NodeHealth | None = None) -> Shown:
    """`health` of its node, where that is known already; else `instance.node` is read."""
    state, reason = instance.state, instance.reason
    if state in _RUNS and instance.node_id is not None:
        health = health or node_health(instance.node, timezone.now())  # type: ignore[arg-type] # it has one
        if not health.vouches:
            state, reason = str(InstanceState.UNREACHABLE), f"Its node is silent. {health.reason}"
    return Shown(instance.role, instance.index, state, reason, instance.desired, instance.revision_id)


def all_shown(instances: Iterable[Instance]) -> list[Shown]:
    return [shown(instance) for instance in instances]
