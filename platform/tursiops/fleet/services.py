"""Changes to nodes: their own reports, and what admins ask of them."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from tursiops.accounts.models import Team
from tursiops.core import events
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict
from tursiops.fleet import wake
from tursiops.fleet.inventory import Inventory
from tursiops.fleet.models import Gpu, Node
from tursiops.fleet.rows import node_row


def node_started(*, name: str, address: str, backend: str = "local") -> Node:
    """A node process begins. Its epoch rises, so that an earlier process of the same name learns that it is over."""
    with transaction.atomic():
        node, _ = Node.objects.get_or_create(name=name)
        Node.objects.filter(pk=node.pk).update(epoch=F("epoch") + 1, address=address, backend=backend)
        node.refresh_from_db()
    return node


def node_heartbeat(*, node_id: uuid.UUID, epoch: int, inventory: Inventory) -> bool:
    """Write that the node lives and what it has. False if a newer process has taken its name.

    The time is the database's, so that nodes whose clocks differ are compared fairly.
    """
    with transaction.atomic():
        taken = Node.objects.filter(pk=node_id, epoch=epoch).update(
            heartbeat_at=Now(),
            cpu_count=inventory.cpu_count,
            memory_total=inventory.memory_total,
            memory_available=inventory.memory_available,
            disk_free=inventory.disk_free,
            versions=inventory.versions,
            updated_at=Now(),
        )
        if not taken:
            return False
        Gpu.objects.filter(node_id=node_id).exclude(index__in=[gpu.index for gpu in inventory.gpus]).delete()
        for gpu in inventory.gpus:
            Gpu.objects.update_or_create(
                node_id=node_id,
                index=gpu.index,
                defaults={
                    "uuid": gpu.uuid,
                    "name": gpu.name,
                    "memory_total": gpu.memory_total,
                    "memory_used": gpu.memory_used,
                    "utilization": gpu.utilization,
                },
            )
    return True


def node_reached(*, node: Node) -> None:
    """The second signal: the controller has had an answer of an engine on this node."""
    Node.objects.filter(pk=node.pk).update(reachable_at=timezone.now())
    node.reachable_at = timezone.now()


def node_cordon(*, node: Node, team: Team, actor: Actor) -> Node:
    """Place nothing new on it; what runs there goes on."""
    return _mark(node, team, actor, "node.cordoned", f"Node {node.name} takes no new instances.", cordoned=True)


def node_uncordon(*, node: Node, team: Team, actor: Actor) -> Node:
    """Open it again; ends a drain too."""
    text = f"Node {node.name} takes instances again."
    return _mark(node, team, actor, "node.uncordoned", text, cordoned=False, draining=False)


def node_drain(*, node: Node, team: Team, actor: Actor) -> Node:
    """Move its instances elsewhere, each replaced before it ends. One that fits nowhere else stays, with the reason."""
    text = f"Node {node.name} is drained: its instances move to other nodes."
    return _mark(node, team, actor, "node.drained", text, cordoned=True, draining=True)


def _mark(node: Node, team: Team, actor: Actor, kind: str, text: str, **wanted: bool) -> Node:
    with transaction.atomic():
        node = Node.objects.select_for_update().get(pk=node.pk)
        before = {name: getattr(node, name) for name in wanted}
        if before == wanted:
            raise Conflict(f"Node {node.name} is in that state already.", hint="Nothing was changed.")
        for name, value in wanted.items():
            setattr(node, name, value)
        node.save(update_fields=[*wanted, "updated_at"])
        record_change(
            team=team,
            actor=actor,
            kind=kind,
            subject_type="node",
            subject_id=node.pk,
            text=text,
            payload=node_row(node, instances=[]),
            changes={name: [before[name], value] for name, value in wanted.items()},
        )
    wake.wake(wake.CONTROLLER)
    return node


def fleet_event(*, node: Node, kind: str, text: str, payload: dict[str, Any] | None = None) -> None:
    """Tell every team: nodes belong to the installation, and any team's instances may be on one."""
    for team in Team.objects.order_by("pk"):
        with transaction.atomic():
            events.record(
                team=team,
                kind=kind,
                subject_type="node",
                subject_id=node.pk,
                text=text,
                payload=payload if payload is not None else node_row(node, instances=[]),
                actor="controller",
            )
