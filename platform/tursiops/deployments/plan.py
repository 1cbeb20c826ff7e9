"""What to do next for one deployment: desired and observed state in, actions out. Pure, and empty once all is well.

clear     rows of ended instances go, so that their places (role, index) and GPUs are free again
evict     instances of lost nodes are given up, unless we suspect ourselves
fill      missing instances are created at the lowest free index
roll      instances of another revision (or of a draining node) end as their successors get ready
trim      surplus ends: unhealthy first, then the highest index
place     what has no node looks for one
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tursiops.deployments.models import Desired, InstanceState

_HEALTHY = [InstanceState.READY, InstanceState.STARTING, InstanceState.SCHEDULED, InstanceState.PENDING]
_NEVER_SERVED = {InstanceState.PENDING, InstanceState.SCHEDULED, InstanceState.STARTING, InstanceState.FAILED}


@dataclass(frozen=True)
class InstanceView:
    id: uuid.UUID
    revision: uuid.UUID
    role: str
    index: int
    desired: str = Desired.RUNNING
    state: str = InstanceState.PENDING
    node: str | None = None
    makes_room: uuid.UUID | None = None  # the old instance that must end before this one fits anywhere

    @property
    def wanted(self) -> bool:
        return self.desired == Desired.RUNNING


@dataclass(frozen=True)
class DeploymentView:
    id: uuid.UUID
    current: uuid.UUID
    desired: str = Desired.RUNNING
    replicas: Mapping[str, int] = field(default_factory=dict)
    instances: tuple[InstanceView, ...] = ()


@dataclass(frozen=True)
class FleetView:
    lost: frozenset[str] = frozenset()  # node names
    draining: frozenset[str] = frozenset()
    frozen: bool = False  # more than half of the nodes fell silent: evict nothing


@dataclass(frozen=True)
class Create:
    role: str
    index: int


@dataclass(frozen=True)
class Place:
    instance: uuid.UUID


@dataclass(frozen=True)
class Stop:
    instance: uuid.UUID
    reason: str


@dataclass(frozen=True)
class Remove:
    """The row goes; a process that may be left on a lost node is swept up by that node when it is back."""

    instance: uuid.UUID


@dataclass(frozen=True)
class RemoveDeployment:
    pass


Action = Create | Place | Stop | Remove | RemoveDeployment


def plan(deployment: DeploymentView, fleet: FleetView) -> list[Action]:
    removed = [item for item in deployment.instances if _is_over(item, fleet)]
    actions: list[Action] = [Remove(item.id) for item in removed]
    rest = [item for item in deployment.instances if item not in removed]
    if deployment.desired == Desired.DELETED and not rest:
        return [*actions, RemoveDeployment()]
    for role in sorted({*deployment.replicas, *(item.role for item in rest)}):
        count = deployment.replicas.get(role, 0) if deployment.desired == Desired.RUNNING else 0
        actions += _plan_role(deployment, [item for item in rest if item.role == role], role, count, fleet)
    return actions


def _is_over(item: InstanceView, fleet: FleetView) -> bool:
    if item.wanted:
        return False
    gone = item.state == InstanceState.STOPPED or item.node is None
    return gone or (item.node in fleet.lost and not fleet.frozen)


def _plan_role(
    deployment: DeploymentView, rows: list[InstanceView], role: str, count: int, fleet: FleetView
) -> list[Action]:
    kept = [item for item in rows if item.wanted]
    lost = [] if fleet.frozen else [item for item in kept if item.node in fleet.lost]
    actions: list[Action] = [Stop(item.id, f"Its node {item.node} is lost; it is replaced.") for item in lost]
    kept = [item for item in kept if item not in lost]
    new = [item for item in kept if _is_current(item, deployment, fleet)]
    old = [item for item in kept if item not in new]
    stops = [*_trim(new, count), *_roll(new, old, count, deployment)]
    creates = _fill(rows, new, old, role, count)
    stopped = {stop.instance for stop in stops}
    places = [Place(item.id) for item in new if item.node is None and item.id not in stopped]
    return [*actions, *stops, *creates, *places]


def _is_current(item: InstanceView, deployment: DeploymentView, fleet: FleetView) -> bool:
    return item.revision == deployment.current and item.node not in fleet.draining


def _trim(new: list[InstanceView], count: int) -> list[Stop]:
    """Surplus of the current revision: those least able to serve first, then the highest index."""
    by_worth = sorted(new, key=lambda item: (_health_rank(item), item.index))
    return [Stop(item.id, "The deployment was scaled down.") for item in by_worth[count:]]


def _health_rank(item: InstanceView) -> int:
    return _HEALTHY.index(InstanceState(item.state)) if item.state in _HEALTHY else len(_HEALTHY)


def _roll(new: list[InstanceView], old: list[InstanceView], count: int, deployment: DeploymentView) -> list[Stop]:
    """Old instances that may go now. As many serve as before: one ends when its successor is ready."""
    why = "A newer revision takes its place." if count else "The deployment was stopped or scaled to zero."
    idle = [item for item in old if item.state in _NEVER_SERVED and item.revision != deployment.current]
    serving = [item for item in old if item not in idle]
    ready = sum(item.state == InstanceState.READY for item in new)
    keep = max(0, count - ready)
    by_worth = sorted(serving, key=lambda item: (_health_rank(item), item.index))
    going = [*idle, *by_worth[keep:]]
    room = {item.makes_room for item in new if item.makes_room is not None and item.node is None}
    going += [item for item in by_worth[:keep] if item.id in room]
    return [Stop(item.id, why) for item in going]


def _fill(
    rows: list[InstanceView], new: list[InstanceView], old: list[InstanceView], role: str, count: int
) -> list[Create]:
    """Missing instances. During a roll-out one at a time, and none after a failure: a bad revision stops there."""
    missing = count - len(new)
    serving_old = [item for item in old if item.state not in _NEVER_SERVED]
    if serving_old and missing > 0:
        pending = [item for item in new if item.state != InstanceState.READY]
        surge = 0 if pending else 1
        missing = min(missing, max(surge, count - len(new) - len(serving_old)))
    taken = {item.index for item in rows}
    free = (index for index in range(len(rows) + max(missing, 0)) if index not in taken)
    return [Create(role, next(free)) for _ in range(missing)]


def fleet_view(states: Iterable[tuple[str, str]], frozen: bool) -> FleetView:
    """`states`: (node name, health.NodeState)."""
    pairs = list(states)
    return FleetView(
        lost=frozenset(name for name, state in pairs if state == "lost"),
        draining=frozenset(name for name, state in pairs if state == "draining"),
        frozen=frozen,
    )
