"""Who supervises a data folder: one lock, one file that names the supervisor and its children by pid and start time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tursiops.fleet.backends import identity

VERSION = 1


class AlreadyRunning(Exception):
    """Another supervisor holds the data folder."""


@contextlib.contextmanager
def only_one(run: Path) -> Iterator[None]:
    """Holds the folder's lock, which the kernel releases with the process. Raises AlreadyRunning."""
    run.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # as the bootstrap makes it
    run.mkdir(exist_ok=True)
    with (run / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = read(run)
            pid, port = found.get("pid", "unknown"), found.get("port", "unknown")
            raise AlreadyRunning(
                f"Tursiops already runs on {run.parent}: process {pid}, http://127.0.0.1:{port}.\n"
                f"  Stop it with Ctrl-C there (or `kill {pid}`), or give this one a folder: up --data-dir … --port …"
            ) from None
        yield


def read(run: Path) -> dict[str, Any]:
    try:
        found = json.loads((run / "supervisor.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("v") == VERSION else {}


def write(run: Path, port: int, children: dict[str, tuple[int, float]]) -> None:
    """`children`: name → (pid, start time)."""
    body = {
        "v": VERSION,
        "pid": os.getpid(),
        "start_time": identity.start_time(os.getpid()),
        "port": port,
        "children": {name: {"pid": pid, "start_time": started} for name, (pid, started) in children.items()},
    }
    part = run / ".supervisor.json.part"
    part.write_text(json.dumps(body))
    os.replace(part, run / "supervisor.json")


def clear(run: Path) -> None:
    (run / "supervisor.json").unlink(missing_ok=True)


def end_leftovers(run: Path, patience_s: float = 8.0) -> list[str]:
    """Ends what a killed supervisor left behind; engines are not in the list, the node adopts them. Their names."""
    left = {
        name: (child["pid"], child["start_time"])
        for name, child in read(run).get("children", {}).items()
        if identity.is_alive(child["pid"], child["start_time"])
    }
    for pid, _ in left.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + patience_s
    while time.monotonic() < end and any(identity.is_alive(*each) for each in left.values()):
        time.sleep(0.05)
    for pid, started in left.values():
        identity.end_group(pid, started)
    return sorted(left)
