"""Subprocesses that tests only wait for: type checkers, compilers. They begin with the session and run behind the
other tests, one after the other and with the lowest priority, in the time in which a core idles; where a test waits
already, two at a time.

A module lists them in `BACKGROUND`, by the name of the test that waits for each with the fixture `from_background`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import psutil

LOWEST = 19
AT_ONCE = 2

_running: set[subprocess.Popen[str]] = set()


def run(argv: list[str], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with what it wrote as text, for jobs: it ends with the session at the latest. `timeout` in s;
    behind others it takes several times as long as alone."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    _running.add(process)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.communicate()
        raise
    finally:
        _running.discard(process)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(process.pid)
        for each in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


class Background:
    """The jobs of a session, by the id of the test that waits for each, in the order in which they run."""

    def __init__(self, jobs: Mapping[str, Callable[[], Any]]) -> None:
        self._left = deque(jobs.items())
        self._results: dict[str, Future[Any]] = {test: Future() for test in jobs}
        self._threads = 0

    def begin(self) -> None:
        """One more at a time."""
        self._threads += 1
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST)  # of this thread, and of the processes that it starts
        while self._left:
            with contextlib.suppress(IndexError):  # the other thread took the last
                test, job = self._left.popleft()
                result = self._results[test]
                try:
                    result.set_result(job())
                except BaseException as error:
                    result.set_exception(error)

    def wait(self, test: str) -> Any:
        """What the job of `test` gave, or raised."""
        result = self._results[test]
        if not result.done() and self._threads < AT_ONCE:
            self.begin()
        return result.result()

    def end(self) -> None:
        self._left.clear()
        for process in list(_running):
            _kill(process)
