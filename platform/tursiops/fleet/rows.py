"""How a node looks from outside, in REST answers and events alike. Contract §6, `Node`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone

from tursiops.deployments.shown import shown
from tursiops.fleet.health import node_health
from tursiops.fleet.models import Gpu, Node


def node_row(node: Node, *, instances: Iterable[Any], now: datetime | None = None) -> dict[str, Any]:
    """`instances`: those that the reader may see, with their deployment."""
    health = node_health(node, now or timezone.now())
    return {
        "id": str(node.pk),
        "name": node.name,
        "state": str(health.state),
        "reason": health.reason,
        "address": node.address,
        "backend": node.backend,
        "heartbeat_at": node.heartbeat_at.isoformat().replace("+00:00", "Z") if node.heartbeat_at else None,
        "heartbeat_age_s": round(health.age_s, 1) if health.age_s is not None else None,
        "cordoned": node.cordoned,
        "draining": node.draining,
        "cpu_count": node.cpu_count,
        "memory_total": node.memory_total,
        "memory_available": node.memory_available,
        "disk_free": node.disk_free,
        "versions": node.versions,
        "gpus": [_gpu_row(gpu) for gpu in node.gpus.all()],
        "instances": [
            {
                "id": str(instance.pk),
                "deployment": instance.deployment.name,
                "state": shown(instance, health).state,
            }
            for instance in instances
        ],
    }


def _gpu_row(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "memory_total": gpu.memory_total,
        "memory_used": gpu.memory_used,
        "utilization": gpu.utilization,
    }
