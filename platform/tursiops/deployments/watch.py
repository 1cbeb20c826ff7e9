"""The controller's eye on nodes: changes of their state, the second signal, and instances that nobody vouches for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import transaction

from tursiops.deployments.apply import ACTOR
from tursiops.deployments.models import Instance, InstanceState
from tursiops.deployments.observed import record_instance_event
from tursiops.deployments.plan import FleetView, fleet_view
from tursiops.fleet.backends import probe
from tursiops.fleet.health import NodeHealth, NodeState, majority_silent, node_health
from tursiops.fleet.models import Node
from tursiops.fleet.services import fleet_event, node_reached

log = structlog.get_logger(__name__)

_PROBE_S = 1.0
_VOUCHED = {InstanceState.STARTING, InstanceState.READY, InstanceState.DRAINING, InstanceState.UNREACHABLE}


@dataclass(frozen=True)
class Watched:
    fleet: FleetView
    silent: frozenset[str]  # names of nodes whose process does not report


class NodeWatch:
    """Remembers the states last told, so that each change makes one event. Lives as long as its controller leads."""

    def __init__(self) -> None:
        self._told: dict[str, NodeState] = {}
        self._frozen = False
        self._probes = ThreadPoolExecutor(8, thread_name_prefix="second-signal")

    def look(self, now: datetime) -> Watched:
        nodes = list(Node.objects.all())
        silent = [node for node in nodes if not node_health(node, now).alive]
        for node in silent:
            self._second_signal(node, now)
        healths = {node.name: node_health(node, now) for node in nodes}
        frozen = majority_silent(nodes, now)
        self._tell(nodes, healths, frozen)
        return Watched(
            fleet_view([(name, str(health.state)) for name, health in healths.items()], frozen),
            frozenset(node.name for node in silent),
        )

    def close(self) -> None:
        self._probes.shutdown(wait=False, cancel_futures=True)

    def _second_signal(self, node: Node, now: datetime) -> None:
        """Ask the engines of a silent node themselves. One that does not answer is not shown as ready."""
        related = ("node", "revision", "deployment__team")
        rows = list(Instance.objects.filter(node=node, state__in=_VOUCHED).select_related(*related))
        answers = list(self._probes.map(_answers, rows))
        if any(answers):
            node_reached(node=node)
        for row, answered in zip(rows, answers, strict=True):
            if answered and row.state == InstanceState.UNREACHABLE and row.ready_at is not None:
                _mark(row, InstanceState.READY, "")
            elif not answered and row.state != InstanceState.UNREACHABLE:
                _mark(row, InstanceState.UNREACHABLE, f"Node {node.name} is silent and the engine does not answer.")

    def _tell(self, nodes: list[Node], healths: dict[str, NodeHealth], frozen: bool) -> None:
        for node in nodes:
            health = healths[node.name]
            before = self._told.get(node.name)
            self._told[node.name] = health.state
            if before is not None and before != health.state:
                log.info("node.state", node=node.name, before=str(before), state=str(health.state))
                fleet_event(
                    node=node,
                    kind=f"node.{health.state}",
                    text=f"Node {node.name} is {health.state}. {health.reason}".strip(),
                )
        frozen = frozen and len(nodes) > 1  # of a single node, its own event has told all
        if frozen and not self._frozen:
            log.error("fleet.majority_silent", nodes=len(nodes))
            fleet_event(
                node=nodes[0],
                kind="fleet.majority_silent",
                text="More than half of the nodes fell silent: no instance is evicted. Check the controller's network.",
            )
        elif self._frozen and not frozen and nodes:
            fleet_event(node=nodes[0], kind="fleet.majority_back", text="Most nodes report again: evictions go on.")
        self._frozen = frozen


def _answers(row: Instance) -> bool:
    return bool(row.port) and probe.health(row.address or "127.0.0.1", row.port, timeout=_PROBE_S).ok


def _mark(row: Instance, state: InstanceState, reason: str) -> None:
    with transaction.atomic():
        changed = Instance.objects.filter(pk=row.pk, state=row.state, epoch=row.epoch).update(
            state=state, reason=reason[:500]
        )
        if changed:
            row.state, row.reason = state, reason
            record_instance_event(row, actor=ACTOR)
