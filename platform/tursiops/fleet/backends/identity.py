"""Is that process ours? A pid alone proves nothing: it may have been given to a stranger since.

A process is named by pid *and* start time. The launch file is written by the node right after the start; where the
node died in between, the process is found by its argument: the run folder, which is private to the instance.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import msgspec
import psutil

_CLOCK_SLACK_S = 1.5  # the kernel counts from boot, and the boot time shifts when the clock is corrected


class Launch(msgspec.Struct, frozen=True):
    """launch.json in the run folder: who was started, at which epoch."""

    instance_id: str
    epoch: int
    pid: int  # leader of a session and process group of its own
    pid_start_time: float  # as psutil.Process.create_time()
    version: int = 1


def launch_of(folder: Path) -> Launch | None:
    try:
        return msgspec.json.decode((folder / "launch.json").read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError):
        return None


def write_launch(folder: Path, launch: Launch) -> None:
    part = folder / ".launch.json.part"
    part.write_bytes(msgspec.json.encode(launch))
    os.replace(part, folder / "launch.json")


def start_time(pid: int) -> float:
    """Raises psutil.NoSuchProcess."""
    return float(psutil.Process(pid).create_time())


def is_alive(pid: int, started: float) -> bool:
    """True if `pid` is the process that started at `started`, and not a zombie."""
    if pid <= 0:
        return False
    try:
        process = psutil.Process(pid)
        same = abs(float(process.create_time()) - started) <= _CLOCK_SLACK_S
        return same and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def find_by_folder(folder: Path) -> tuple[int, float] | None:
    """(pid, start time) of a session leader of ours that was given `folder` as an argument of its own."""
    wanted = str(folder)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (
                wanted in process.cmdline()
                and process.uids().real == os.getuid()
                and os.getsid(process.pid) == process.pid
            ):
                return process.pid, process.create_time()
    return None


def end_group(pid: int, started: float) -> None:
    """SIGKILL to the process group that `pid` led.

    While any member lives the kernel gives the group's number to no new process. So a leader of another start time
    means that the group is empty; no leader at all means that what is left in the group is ours.
    """
    if pid <= 1:
        return
    try:
        if abs(psutil.Process(pid).create_time() - started) > _CLOCK_SLACK_S:
            return
    except psutil.NoSuchProcess:
        pass  # the leader is gone; its children may not be
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
