"""What became of a process. A zombie counts as gone: in a container whose process 1 reaps nothing it stays for ever."""

from __future__ import annotations

import psutil


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
