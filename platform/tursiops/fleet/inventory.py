"""What a host has: processors, memory, disk and GPUs, as it is at this moment.

GPUs are asked of `nvidia-smi`, so that no driver library is needed where there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

import tursiops

_QUERY = "index,uuid,name,memory.total,memory.used,utilization.gpu"
_MIB = 1024 * 1024


@dataclass(frozen=True)
class GpuReading:
    index: int
    uuid: str
    name: str
    memory_total: int  # bytes
    memory_used: int  # bytes
    utilization: float | None  # 0…1; None where the driver does not tell


@dataclass(frozen=True)
class Inventory:
    cpu_count: int
    memory_total: int  # bytes, the control group's limit where that is less than the host has
    memory_available: int  # bytes
    disk_free: int  # bytes where the file store lies
    versions: dict[str, str] = field(default_factory=dict)
    gpus: list[GpuReading] = field(default_factory=list)


def read_inventory(data_dir: Path) -> Inventory:
    total, available = _memory()
    return Inventory(
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_total=total,
        memory_available=available,
        disk_free=psutil.disk_usage(str(data_dir)).free,
        versions=_versions(),
        gpus=read_gpus(),
    )


def read_gpus() -> list[GpuReading]:
    """The GPUs that the driver shows; none where there is no driver, or where it does not answer in 10 s."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(done.stdout)


def parse_gpus(text: str) -> list[GpuReading]:
    """Lines of `nvidia-smi --query-gpu`. A line that does not read as a GPU (an ERR! of a lost card) is left out."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 6 or not (cells[0].isdigit() and cells[3].isdigit() and cells[4].isdigit()):
            continue
        found.append(
            GpuReading(
                index=int(cells[0]),
                uuid=cells[1],
                name=cells[2],
                memory_total=int(cells[3]) * _MIB,
                memory_used=int(cells[4]) * _MIB,
                utilization=int(cells[5]) / 100 if cells[5].isdigit() else None,
            )
        )
    return found


def _memory() -> tuple[int, int]:
    """(total, available) bytes. In a container the control group's limit is what ends processes, not the host's."""
    host = psutil.virtual_memory()
    limit, used = _group_number("memory.max"), _group_number("memory.current")
    if limit is None or used is None or limit >= host.total:
        return host.total, host.available
    cache = _group_stat("inactive_file")
    return limit, max(0, min(host.available, limit - used + cache))


def _group_number(name: str) -> int | None:
    try:
        text = Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _group_stat(name: str) -> int:
    try:
        lines = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)


def _versions() -> dict[str, str]:
    """Versions that decide what can run here. Read from the packages' metadata: torch is not imported for it."""
    found = {"tursiops": tursiops.__version__, "python": sys.version.split()[0], "kernel": os.uname().release}
    for name in ("torch", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
