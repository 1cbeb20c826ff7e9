"""Would it fit, where, and if not why not: asked before a deployment is made, with the same placement as afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone

from engines.api import Fit
from tursiops.core.errors import TursiopsError
from tursiops.deployments.models import Revision
from tursiops.deployments.rooms import requirement_of, rooms
from tursiops.fleet.placement import Choice, NodeRoom, Placement, Requirement, place

_PASSING = {"state"}  # a node that is silent or closed now may be open later


@dataclass(frozen=True)
class Estimate:
    placed: int  # replicas that find a place, of `asked`
    asked: int
    first: Placement  # of the first replica that does not fit, else of the last
    need: Fit

    @property
    def fits(self) -> bool:
        return self.placed == self.asked

    @property
    def hopeless(self) -> bool:
        """Not even one replica fits, and waiting alone will not change it."""
        causes = {item.filter for item in self.first.rejected}
        return self.asked > 0 and self.placed == 0 and bool(causes) and not causes & _PASSING

    @property
    def reason(self) -> str:
        if self.fits or self.placed == 0:
            return self.first.reason
        return f"{self.placed} of {self.asked} replicas fit. {self.first.reason}"

    def as_dict(self) -> dict[str, Any]:
        chosen = self.first.chosen
        return {
            "fits": self.fits,
            "reason": self.reason,
            "suggestions": self.need.suggestions,
            "memory": {
                "weights": self.need.weights,
                "kv_cache": self.need.kv_cache,
                "activations": self.need.activations,
                "verification": self.need.verification,
                "overhead": self.need.overhead,
                "total": self.need.total,
                "available": self.need.available,
                "host": self.need.host,
            },
            "kv_tokens": self.need.kv_tokens,
            "node": chosen.node if chosen else None,
            "rejected": [
                {"node": item.node, "reason": item.reason} for item in self.first.rejected if item.filter != "score"
            ],
        }


def estimate(
    *, revision: Revision, replicas: dict[str, int], served_name: str = "", replaces: Iterable[uuid.UUID] = ()
) -> Estimate:
    """`revision` need not be saved. `replaces`: instances that will have gone by then (an edit of their deployment)."""
    space = rooms(deployment=None, revision=revision, now=timezone.now(), without=replaces)
    roles = [role for role, count in sorted(replicas.items()) for _ in range(count)]
    placed = 0
    while True:  # at least once: of no replicas, one is estimated
        requirement = _requirement(revision, roles[placed] if roles else "unified", served_name)
        last = place(requirement, space)
        if last.chosen is None:
            break
        placed += 1
        if placed >= len(roles):
            break
        space = [_less(room, last.chosen) for room in space]
    return Estimate(min(placed, len(roles)), len(roles), last, _need(last, requirement))


def _requirement(revision: Revision, role: str, served_name: str) -> Requirement:
    try:
        return requirement_of(revision, role=role, served_name=served_name)
    except (ValueError, TypeError) as error:
        raise TursiopsError(f"version: its shape can't be read ({error}).", hint="Import it again.") from error


def _need(placement: Placement, requirement: Requirement) -> Fit:
    """The chosen node's figures, else those of the candidate with most room, else of the bare model."""
    if placement.chosen is not None:
        return placement.chosen.need
    needs = [item.need for item in placement.rejected if item.need is not None]
    device = "cpu" if requirement.device == "auto" else requirement.device
    return max(needs, key=lambda need: need.available, default=None) or requirement.fit(device, 0)


def _less(room: NodeRoom, choice: Choice) -> NodeRoom:
    """`room` with one more instance in it."""
    if room.name != choice.node:
        return room
    if not choice.gpu_indices:
        return replace(room, memory_free=max(0, room.memory_free - choice.need.total))
    share = -(-choice.need.total // len(choice.gpu_indices))
    gpus = tuple(
        replace(gpu, memory_free=max(0, gpu.memory_free - share)) if gpu.index in choice.gpu_indices else gpu
        for gpu in room.gpus
    )
    return replace(room, gpus=gpus)
