"""The heap of a CPU engine: glibc is told to keep what a pass frees, since the next one asks for the same.

By default it gives large pieces back to the system and gets them anew, zeroed a page at a time, in every layer: eight
rows of 900 tokens spent 300 ms a pass on their attention, and 70 to 120 ms with this.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of malloc.h
_KEPT = 2**30
_LARGEST = 2**25  # of a piece that comes from the heap; the greatest value that glibc takes


def keep() -> None:
    """For the whole process, after its model is loaded: what loading frees goes back. Nothing where the C library has
    no such settings."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)
