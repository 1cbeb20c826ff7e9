"""A child that must not outlive its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """SIGKILL to this process when process `parent`, which started it, dies. The kernel watches the thread that
    started us, so start children from the main thread. Exits at once if the parent is gone already."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if not is_child_of(parent):
        sys.exit(1)


def is_child_of(parent: int) -> bool:
    """For systems without the death signal: asked now and then."""
    return os.getppid() == parent
