"""The free room of each node for placement, and what an instance of a revision needs.

Memory that is measured free may be promised already: an instance that still loads has not taken its share yet. So
the room is the lesser of "measured, less what starts" and "all there is, less everything placed".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from engines.api import Fit
from tursiops.core import registry
from tursiops.core.models import BlobReplica
from tursiops.deployments.models import Deployment, Instance, InstanceState, Revision
from tursiops.deployments.specs import launch_spec, shape_of
from tursiops.deployments.speculation import draft_used
from tursiops.fleet.health import node_health
from tursiops.fleet.models import Node
from tursiops.fleet.placement import FitOf, GpuRoom, NodeRoom, Requirement

_USABLE = 0.95  # of all memory; the rest is for the host itself
_TO_COME = {InstanceState.PENDING, InstanceState.SCHEDULED, InstanceState.STARTING}
_NOTHING_HELD = {InstanceState.STOPPED, InstanceState.FAILED}


def requirement_of(revision: Revision, *, role: str, served_name: str) -> Requirement:
    """Raises NotFound for an engine that is not installed."""
    gpus = int(revision.topology.get(role, {}).get("gpus") or 1)
    return Requirement(
        fit=fit_of(revision, role=role, served_name=served_name),
        device=revision.device,
        gpus=gpus,
        node_name=revision.node_name,
        gpu_indices=tuple(revision.gpu_indices),
    )


def fit_of(revision: Revision, *, role: str, served_name: str) -> FitOf:
    engine = registry.engine(revision.engine)
    shape = shape_of(revision.version)
    weights = revision.version.size_bytes

    def fit(device: str, available: int) -> Fit:
        spec = launch_spec(
            revision,
            instance_id="",
            served_name=served_name,
            role=role,
            gpu_indices=revision.gpu_indices,
            device=device,
        )
        return engine.fit(shape, spec, weights, available)

    return fit


def rooms(
    *, deployment: Deployment | None, revision: Revision, now: datetime, without: Iterable[Any] = ()
) -> list[NodeRoom]:
    """Every node as placement sees it; `without`: ids of instances that are taken to be gone."""
    gone = set(without)
    placed = [row for row in Instance.objects.exclude(node=None) if row.pk not in gone]
    freed = list(Instance.objects.filter(pk__in=gone).exclude(node=None))
    holders = nodes_with_files(revision)
    return [
        _room(node, [row for row in placed if row.node_id == node.pk], freed, deployment, node.name in holders, now)
        for node in Node.objects.prefetch_related("gpus")
    ]


def nodes_with_files(revision: Revision) -> set[str]:
    """Names of the nodes whose store holds every file of the revision's version and of its draft."""
    versions = [version for version in (revision.version, draft_used(revision)) if version is not None]
    blobs = {blob for version in versions for blob in version.files.values_list("blob_id", flat=True)}
    held: dict[str, set[str]] = {}
    for name, blob in BlobReplica.objects.filter(blob_id__in=blobs).values_list("node_name", "blob_id"):
        held.setdefault(name, set()).add(blob)
    return {name for name, have in held.items() if have == blobs}


def _room(
    node: Node,
    here: list[Instance],
    freed: list[Instance],
    deployment: Deployment | None,
    has_files: bool,
    now: datetime,
) -> NodeRoom:
    health = node_health(node, now)
    on_cpu = [row for row in here if not row.gpu_indices]
    back = sum(_bytes(row) for row in freed if row.node_id == node.pk and not row.gpu_indices)
    return NodeRoom(
        name=node.name,
        state=str(health.state),
        reason=health.reason,
        memory_total=node.memory_total,
        memory_free=_free(node.memory_total, node.memory_available + back, on_cpu, _bytes),
        gpus=tuple(_gpu_room(gpu, here, [row for row in freed if row.node_id == node.pk]) for gpu in node.gpus.all()),
        has_files=has_files,
        replicas_here=sum(deployment is not None and row.deployment_id == deployment.pk for row in here),
    )


def _gpu_room(gpu: Any, here: list[Instance], freed: list[Instance]) -> GpuRoom:
    users = [row for row in here if gpu.index in row.gpu_indices]
    back = sum(_share(row) for row in freed if gpu.index in row.gpu_indices)
    free = _free(gpu.memory_total, gpu.memory_total - gpu.memory_used + back, users, _share)
    return GpuRoom(gpu.index, gpu.name, gpu.memory_total, free)


def _free(total: int, measured: int, rows: list[Instance], need: Callable[[Instance], int]) -> int:
    to_come = sum(need(row) for row in rows if row.state in _TO_COME)
    promised = sum(need(row) for row in rows if row.state not in _NOTHING_HELD)
    return max(0, min(measured - to_come, int(total * _USABLE) - promised))


def _bytes(row: Instance) -> int:
    return int(row.placement.get("bytes") or 0)


def _share(row: Instance) -> int:
    """Bytes on each of its GPUs."""
    return -(-_bytes(row) // max(1, len(row.gpu_indices)))
