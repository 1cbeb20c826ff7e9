"""From rows to the engine contract: LaunchSpec and Local of one start, and the shape that estimates need."""

from __future__ import annotations

from typing import Any

import msgspec

from engines.api import Draft, LaunchSpec, Local, ModelFile, ModelShape, Role
from tursiops.core import store
from tursiops.deployments.models import Instance, Revision
from tursiops.deployments.speculation import draft_used
from tursiops.registry.models import Version


def shape_of(version: Version) -> ModelShape:
    """Unknown numbers are 0, as in the contract."""
    words = ("architecture", "tied_embeddings", "task")
    blank = {name: 0 for name in ModelShape.__struct_fields__ if name not in words}
    return msgspec.convert({**blank, "architecture": version.architecture, **version.shape}, ModelShape)


def launch_spec(
    revision: Revision, *, instance_id: str, served_name: str, role: str, gpu_indices: list[int], device: str = ""
) -> LaunchSpec:
    """Free of paths and secrets. `device` is the one that placement chose; empty: the revision's."""
    draft = draft_used(revision)
    return LaunchSpec(
        instance_id=instance_id,
        served_name=served_name,
        files=_model_files(revision.version),
        format=revision.version.format,
        engine=revision.engine,
        role=Role(role),
        device=device or revision.device,
        gpu_indices=gpu_indices,
        dtype=revision.dtype,
        max_model_len=revision.max_model_len,
        max_num_seqs=revision.max_num_seqs,
        kv_cache_bytes=revision.kv_cache_bytes,
        options=revision.options,
        draft=None if draft is None else Draft(_model_files(draft), draft.format, shape_of(draft)),
    )


def spec_of_instance(instance: Instance) -> LaunchSpec:
    return launch_spec(
        instance.revision,
        instance_id=str(instance.pk),
        served_name=instance.deployment.name,
        role=instance.role,
        gpu_indices=instance.gpu_indices,
        device=instance.placement.get("device") or "",
    )


def local_of_instance(instance: Instance, *, host: str, token: str, cache_dir: str = "") -> Local:
    """Raises core.store.StoreError if a file of the version, or of its draft, is not on this node."""
    draft = draft_used(instance.revision)
    return Local(
        paths=_paths(instance.revision.version),
        host=host,
        port=0,
        token=token,
        epoch=instance.epoch,
        draft_paths={} if draft is None else _paths(draft),
        cache_dir=cache_dir,
    )


def _model_files(version: Version) -> list[ModelFile]:
    return [ModelFile(item.name, item.blob_id, item.blob.size) for item in _files(version)]


def _paths(version: Version) -> dict[str, str]:
    return {item.name: str(store.path_of(item.blob_id)) for item in _files(version)}


def _files(version: Version) -> Any:
    return version.files.select_related("blob")
