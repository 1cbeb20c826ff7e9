"""How deployments, revisions and instances look from outside: in REST answers and in events alike."""

from __future__ import annotations

from typing import Any

from tursiops.deployments.derive import Derived, derive
from tursiops.deployments.models import Deployment, Instance, Revision
from tursiops.deployments.shown import all_shown, shown


def deployment_row(deployment: Deployment) -> dict[str, Any]:
    """Contract §6, `Deployment`. Reads instances and current revision; prefetch them for lists."""
    instances = _instances(deployment)
    derived = derived_state(deployment, instances)
    return {
        "id": str(deployment.pk),
        "name": deployment.name,
        "description": deployment.description,
        "desired": deployment.desired,
        "state": str(derived.state),
        "reason": derived.reason,
        "replicas": deployment.replicas,
        "ready": derived.ready,
        "revision": revision_row(deployment.current, deployment.current_id) if deployment.current else None,
        "instances": [instance_row(instance) for instance in instances],
        "created_at": _time(deployment.created_at),
        "endpoint": "/v1/chat/completions",
    }


def derived_state(deployment: Deployment, instances: list[Instance] | None = None) -> Derived:
    return derive(
        desired=deployment.desired,
        replicas=deployment.replicas,
        current_id=deployment.current_id,
        instances=all_shown(_instances(deployment) if instances is None else instances),
    )


def revision_row(revision: Revision, current_id: Any) -> dict[str, Any]:
    return {
        "id": str(revision.pk),
        "number": revision.number,
        "version": str(revision.version_id),
        "version_label": str(revision.version),
        "draft_version": str(revision.draft_version_id) if revision.draft_version_id else None,
        "draft_label": str(revision.draft_version) if revision.draft_version else None,
        "engine": revision.engine,
        "topology": revision.topology,
        "device": revision.device,
        "dtype": revision.dtype,
        "max_model_len": revision.max_model_len,
        "max_num_seqs": revision.max_num_seqs,
        "kv_cache_bytes": revision.kv_cache_bytes,
        "node_name": revision.node_name,
        "gpu_indices": revision.gpu_indices,
        "options": revision.options,
        "created_at": _time(revision.created_at),
        "created_by": revision.created_by.get_username() if revision.created_by else None,
        "current": revision.pk == current_id,
    }


def instance_row(instance: Instance) -> dict[str, Any]:
    seen = shown(instance)
    return {
        "id": str(instance.pk),
        "role": instance.role,
        "index": instance.index,
        "state": seen.state,
        "reason": seen.reason,
        "desired": instance.desired,
        "node": instance.node.name if instance.node else None,
        "epoch": instance.epoch,
        "progress": instance.progress,
        "restarts": instance.restarts,
        "next_start_at": _time(instance.next_start_at),
        "ready_at": _time(instance.ready_at),
        "seen_at": _time(instance.seen_at),
        "facts": instance.facts,
        "placement": instance.placement,
        "revision_number": instance.revision.number,
    }


def _instances(deployment: Deployment) -> list[Instance]:
    """From the prefetch of a list, else from the database: an event must show the row as just written."""
    if "instances" in getattr(deployment, "_prefetched_objects_cache", {}):
        return list(deployment.instances.all())
    return list(deployment.instances.select_related("node", "revision"))


def _time(moment: Any) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None
