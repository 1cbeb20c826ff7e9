"""What engines keep between starts (the lookahead cache's snapshot): a folder on the node for each deployment and model
version, so that an instance that restarts, or is added, begins with what others of its kind have seen.

    <data>/cache/engines/<deployment id>/<version id>/     0700: it is what was said

Instances of one version write to the same folder, each file whole or not at all. A deployment that is gone takes its
folder with it; of one whose version changes, the VERSIONS last used stay, for a rollback. All of it may be lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

import structlog

from tursiops.deployments.models import Deployment, Instance

log = structlog.get_logger(__name__)

VERSIONS = 3
"""Of one deployment, on one node."""


class EngineCaches:
    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, instance: Instance) -> str:
        """Made, for a start of `instance`: its absolute path; "" where the disk gives none, and it starts cold."""
        deployment = self.root / str(instance.deployment_id)
        own = deployment / str(instance.revision.version_id)
        try:
            for path in (self.root, deployment, own):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.utime(own)
            by_use = sorted(deployment.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in by_use[VERSIONS:]:
                shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            log.warning("engine.no_cache", instance=str(instance.pk), error=str(error))
            return ""
        return str(own.resolve())

    def sweep(self, rows: Iterable[Instance]) -> None:
        """Delete the folders of deployments that are gone. rows: instances of this node; theirs are not."""
        left = self._deployments() - {row.deployment_id for row in rows}
        if not left:
            return
        for gone in left - set(Deployment.objects.filter(pk__in=left).values_list("pk", flat=True)):
            log.info("engine.cache_deleted", deployment=str(gone))
            shutil.rmtree(self.root / str(gone), ignore_errors=True)

    def _deployments(self) -> set[uuid.UUID]:
        """That have a folder. What else may lie there is not ours to delete."""
        found = set()
        with contextlib.suppress(FileNotFoundError):  # nothing was kept yet
            for path in self.root.iterdir():
                with contextlib.suppress(ValueError):
                    found.add(uuid.UUID(path.name))
        return found
