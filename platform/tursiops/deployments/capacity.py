"""What of a version fits where: dtype × context × concurrency on each node, or in a memory that is only thought of."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from django.utils import timezone

from engines.api import DtypeCapacity, Engine, TellsCapacity
from tursiops.core.errors import TursiopsError
from tursiops.deployments.models import Revision
from tursiops.deployments.refusals import refuse
from tursiops.deployments.rooms import requirement_of, rooms
from tursiops.deployments.specs import launch_spec, shape_of
from tursiops.fleet.placement import Rejection, Spot, spot_of

CONTEXTS = (2048, 8192, 32_768)
"""Tokens that are asked after where nothing is given, as far as the model goes; its own context length comes last."""
CONCURRENCIES = (1, 4, 16, 64)


@dataclass(frozen=True)
class Asked:
    """dtypes: empty = all that the engine has. contexts: tokens; empty = CONTEXTS. memory_bytes: of a device that
    stands in no node, instead of those that do; 0 = the nodes."""

    dtypes: tuple[str, ...] = ()
    contexts: tuple[int, ...] = ()
    concurrencies: tuple[int, ...] = CONCURRENCIES
    memory_bytes: int = 0


def capacity(*, revision: Revision, engine: Engine, asked: Asked, replaces: Iterable[uuid.UUID] = ()) -> dict[str, Any]:
    """`revision` need not be saved; its dtype, lengths and KV cache are not read. `replaces`: instances that will have
    gone by then. Raises TursiopsError where the engine, or the model, has no such figures."""
    if not isinstance(engine, TellsCapacity):
        raise refuse("engine", f"{engine.name} does not tell what fits.", "Ask for an estimate of one setting instead.")
    context = shape_of(revision.version).context_length
    contexts = asked.contexts or (*(length for length in CONTEXTS if length < context), context)
    asked = Asked(_dtypes(engine, asked.dtypes), contexts, asked.concurrencies, asked.memory_bytes)
    spots, rejected = _spots(revision, asked.memory_bytes, replaces)
    return {
        "context_length": context,
        "contexts": asked.contexts,
        "concurrencies": asked.concurrencies,
        "places": [
            {
                "node": spot.node or None,
                "device": spot.device,
                "gpu_indices": spot.gpu_indices,
                "available": spot.memory_free,
                "dtypes": [msgspec.to_builtins(each) for each in _told(revision, engine, spot, asked)],
            }
            for spot in spots
        ],
        "rejected": [{"node": item.node, "reason": item.reason} for item in rejected],
    }


def _dtypes(engine: Engine, wanted: tuple[str, ...]) -> tuple[str, ...]:
    known = engine.capabilities().dtypes
    for name in wanted:
        if name not in known:
            raise refuse(
                "dtypes", f"Engine {engine.name} does not serve dtype {name!r}.", f"It has {', '.join(known)}."
            )
    return wanted or tuple(known)


def _spots(revision: Revision, memory_bytes: int, replaces: Iterable[uuid.UUID]) -> tuple[list[Spot], list[Rejection]]:
    if memory_bytes:
        return [Spot("", "cuda" if revision.device == "cuda" else "cpu", (), memory_bytes)], []
    requirement = requirement_of(revision, role="unified", served_name="")
    space = rooms(deployment=None, revision=revision, now=timezone.now(), without=replaces)
    found = [spot_of(requirement, room) for room in sorted(space, key=lambda room: room.name)]
    spots = [item for item in found if isinstance(item, Spot)]
    return spots, [item for item in found if isinstance(item, Rejection)]


def _told(revision: Revision, engine: TellsCapacity, spot: Spot, asked: Asked) -> list[DtypeCapacity]:
    spec = launch_spec(
        revision, instance_id="", served_name="", role="unified", gpu_indices=[*spot.gpu_indices], device=spot.device
    )
    try:
        return engine.capacity(
            shape_of(revision.version),
            spec,
            revision.version.size_bytes,
            spot.memory_free,
            dtypes=asked.dtypes,
            contexts=asked.contexts,
            concurrencies=asked.concurrencies,
        )
    except ValueError as error:
        raise TursiopsError(str(error)) from error
