"""Is a node there? Two signals: its own heartbeat, and whether the controller reaches its engines.

A single lost signal is no proof of death: a node process may be down while its engines serve (they outlive it), and
a controller that hears nobody has more likely lost its own network than all of its nodes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tursiops.fleet.models import Node

HEARTBEAT_S = 5.0
SUSPECT_AFTER_S = 3 * HEARTBEAT_S
LOST_AFTER_S = 6 * HEARTBEAT_S
FORGOTTEN_AFTER_S = 600.0  # a node silent for longer no longer counts in the vote on who has lost the network


class NodeState(enum.StrEnum):
    READY = "ready"
    SUSPECT = "suspect"
    LOST = "lost"
    CORDONED = "cordoned"
    DRAINING = "draining"


@dataclass(frozen=True)
class NodeHealth:
    state: NodeState
    reason: str  # one sentence; empty where all is well
    age_s: float | None  # of the last heartbeat; None before the first
    reached: bool = False  # its process is silent, but the controller has just reached its engines

    @property
    def alive(self) -> bool:
        """Its node process reports: it can start and stop engines."""
        return self.state not in (NodeState.SUSPECT, NodeState.LOST)

    @property
    def vouches(self) -> bool:
        """One of the two signals says that what runs there does run."""
        return self.alive or self.reached


def age_s(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (now - moment).total_seconds())


def node_health(node: Node, now: datetime) -> NodeHealth:
    age = age_s(node.heartbeat_at, now)
    if age is None:
        return NodeHealth(NodeState.LOST, "It has never reported. Start `manage.py node` on it.", None)
    if age >= SUSPECT_AFTER_S:
        reached = age_s(node.reachable_at, now)
        if reached is not None and reached < SUSPECT_AFTER_S:
            text = f"No heartbeat for {age:.0f} s, but its engines answer: only the node process is down."
            return NodeHealth(NodeState.SUSPECT, text, age, reached=True)
        if age < LOST_AFTER_S:
            return NodeHealth(NodeState.SUSPECT, f"No heartbeat for {age:.0f} s; lost after {LOST_AFTER_S:.0f} s.", age)
        text = f"No heartbeat for {age:.0f} s and its engines do not answer. Check the host and its network."
        return NodeHealth(NodeState.LOST, text, age)
    if node.draining:
        return NodeHealth(NodeState.DRAINING, "Its instances are moved to other nodes; none are placed on it.", age)
    if node.cordoned:
        return NodeHealth(NodeState.CORDONED, "An admin closed it for new instances; those on it go on.", age)
    return NodeHealth(NodeState.READY, "", age)


def majority_silent(nodes: Iterable[Node], now: datetime) -> bool:
    """True if more than half of the nodes heard of in the last ten minutes have fallen silent: suspect ourselves.

    Nothing is evicted then. A fleet of one node is always a majority: its instances have nowhere else to go.
    """
    ages = [age for node in nodes if (age := age_s(node.heartbeat_at, now)) is not None and age < FORGOTTEN_AFTER_S]
    return 2 * sum(age >= SUSPECT_AFTER_S for age in ages) > len(ages)
