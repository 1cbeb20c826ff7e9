"""The children of one machine: they end whatever the disk says."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tursiops.fleet.backends import identity
from tursiops.supervisor import processes
from tursiops.supervisor.processes import Processes
from tursiops.supervisor.table import Program

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


async def test_a_full_disk_keeps_nothing_from_ending(tmp_path, monkeypatch):
    """Neither the state file nor the log of the engines' end can be written; engines and children end all the same."""
    made = Processes(tmp_path, 8000)
    child = made.start(Program("web", SLEEP))
    engine = subprocess.Popen(SLEEP, start_new_session=True)
    folder = tmp_path / "instances" / "i"
    folder.mkdir(parents=True)
    identity.write_launch(folder, identity.Launch("i", 1, engine.pid, identity.start_time(engine.pid)))
    plain = Path.open

    def full(path: Path, mode: str = "r", *args, **options):
        if "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(processes, "django", lambda *_: [sys.executable, "-c", ""])
    while not child.running:
        await processes.asyncio.sleep(0.01)
    pid = child.pid
    await made.stop()
    assert engine.wait(5) != 0
    assert not psutil.pid_exists(pid)
    with pytest.raises(OSError, match="No space"):
        (tmp_path / "x").open("w")
