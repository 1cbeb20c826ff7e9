"""Children that outlived their worker. A small file per running child says which process it is; a bare pid is never
trusted, the start time must match."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import structlog
from django.conf import settings

if TYPE_CHECKING:
    from tursiops.jobs.models import Job

log = structlog.get_logger(__name__)


def folder() -> Path:
    path = Path(settings.RUN_DIR) / "jobs"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _file(job: Job) -> Path:
    return folder() / f"{job.pk}.json"


def note(job: Job, pid: int) -> None:
    """Remember the child of `job`, the leader of its process group."""
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
        _file(job).write_text(json.dumps({"pid": pid, "started": psutil.Process(pid).create_time()}))


def forget(job: Job) -> None:
    _file(job).unlink(missing_ok=True)


def end(job: Job) -> bool:
    """Kill the process group that an earlier attempt of `job` left on this node. True if there was one."""
    try:
        noted = json.loads(_file(job).read_text())
        same = abs(psutil.Process(noted["pid"]).create_time() - noted["started"]) < 0.01
    except (FileNotFoundError, ValueError, KeyError, psutil.NoSuchProcess):
        same = False
    if same:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(noted["pid"], signal.SIGKILL)
        log.warning("job.orphan_ended", job=str(job.pk), pid=noted["pid"])
    forget(job)
    return bool(same)
