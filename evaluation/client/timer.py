"""What is due at times of the monotonic clock, exactly: asyncio's own timers round up to whole milliseconds."""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os
import sys
import time
from collections.abc import Callable

_MONOTONIC, _NONBLOCK, _CLOEXEC, _ABSOLUTE = 1, os.O_NONBLOCK, os.O_CLOEXEC, 1
_FAR = 2**62


class _Spec(ctypes.Structure):
    """`struct itimerspec`: interval, then the time, each seconds and nanoseconds (timerfd_create(2))."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Timer:
    """Calls back at absolute `time.monotonic_ns()` times, in their order. Belongs to one running event loop.

    On Linux by a timerfd that the loop's selector watches (about 60 µs late on an idle core); elsewhere by the loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._armed = _FAR
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_MONOTONIC, _NONBLOCK | _CLOEXEC)
            if self._fd < 0:
                raise OSError(ctypes.get_errno(), "timerfd_create failed")
            self._loop.add_reader(self._fd, self._expired)

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due_ns, next(self._numbers), call))
        if due_ns < self._armed:
            self._arm(due_ns)

    def clear(self) -> None:
        """Nothing that was due is called any more."""
        self._due.clear()

    def close(self) -> None:
        self.clear()
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm(self, due_ns: int) -> None:
        self._armed = due_ns
        if self._fd >= 0:
            seconds, nanoseconds = divmod(max(due_ns, 1), 10**9)
            spec = _Spec(0, 0, seconds, nanoseconds)
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(due_ns / 1e9, self._run)

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew after it had expired
            return
        self._run()

    def _run(self) -> None:
        self._armed = 0  # what is added meanwhile need not arm
        due = self._due
        while due and due[0][0] <= time.monotonic_ns():
            heapq.heappop(due)[2]()
        if due:
            self._arm(due[0][0])
        else:
            self._armed = _FAR
