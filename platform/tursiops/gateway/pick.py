"""Which instance a request goes to. A pure function of request, snapshot and loads, so that it can explain itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tursiops.gateway.snapshot import InstanceEntry, RouteEntry, Snapshot


@dataclass(frozen=True, slots=True)
class Load:
    """One instance as this gateway has seen it."""

    in_flight: int = 0
    picked: int = 0  # requests ever sent; equal loads take turns by it
    cooling: bool = False  # failed a moment ago


@dataclass(frozen=True, slots=True)
class PickRequest:
    team: str
    model: str
    tried: frozenset[str] = frozenset()  # instances that failed this request already


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` goes into a response header: short, ASCII. `rejected` holds (instance id, why)."""

    instance: InstanceEntry | None
    reason: str
    rejected: tuple[tuple[str, str], ...] = field(default=())


_IDLE = Load()


def takes_requests(instance: InstanceEntry) -> bool:
    return instance.state == "ready" and instance.role in ("unified", "decode") and instance.weight > 0


def ready_instances(route: RouteEntry) -> list[InstanceEntry]:
    return [instance for instance in route.instances if takes_requests(instance)]


def pick(request: PickRequest, snapshot: Snapshot, loads: Mapping[str, Load]) -> Decision:
    """The least loaded ready instance, by requests in flight over weight.

    Draining ones never take a request. One that failed this request, or failed a moment ago, is taken only where
    there is no other.
    """
    route = snapshot.by_name.get((request.team, request.model))
    if route is None:
        return Decision(None, "unknown model")
    rejected: list[tuple[str, str]] = []
    fresh: list[InstanceEntry] = []
    second: list[InstanceEntry] = []
    for instance in route.instances:
        if not takes_requests(instance):
            rejected.append((instance.id, instance.state if instance.state != "ready" else f"role {instance.role}"))
        elif instance.id in request.tried:
            rejected.append((instance.id, "failed this request"))
            second.append(instance)
        elif loads.get(instance.id, _IDLE).cooling:
            rejected.append((instance.id, "failed a moment ago"))
            second.append(instance)
        else:
            fresh.append(instance)
    if not fresh and not second:
        return Decision(None, "no instance is ready", tuple(rejected))

    def rank(instance: InstanceEntry) -> tuple[bool, float, float, str]:
        load = loads.get(instance.id, _IDLE)
        share = 1 / instance.weight
        return instance.id in request.tried, (load.in_flight + 1) * share, load.picked * share, instance.id

    candidates = fresh or second
    chosen = min(candidates, key=rank)
    if len(candidates) == 1:
        reason = "only ready instance" if fresh else "no other instance"
    else:
        reason = f"least loaded of {len(candidates)}"
    told = {name for name, _ in rejected} | {chosen.id}
    others = ((instance.id, "more loaded") for instance in candidates if instance.id not in told)
    return Decision(chosen, reason, (*(pair for pair in rejected if pair[0] != chosen.id), *others))
