"""Subprocesses that tests only wait for: type checkers, compilers. They begin with the session and run behind the
other tests, one after the other and with the lowest priority, in the time in which a core idles; where a test waits
already, two at a time and like any other.

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
from pathlib import Path
from typing import Any

import psutil

LOWEST = 19
AT_ONCE = 2

ROOT = Path(__file__).resolve().parents[1]

_environment: dict[str, str] = {}
_running: set[subprocess.Popen[str]] = set()
_waited = threading.Event()  # a test waits for a job: they need not give way


def run(
    argv: list[str], *, timeout: float, cwd: Path = ROOT, env: Mapping[str, str | None] | None = None
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with what it wrote as text, for jobs: it ends with the session at the latest.

    timeout: s; behind others it takes several times as long as alone. env: changes to the environment that the session
    began with, since a test may be changing it now; None: left out.
    """
    variables = {name: value for name, value in (_environment | dict(env or {})).items() if value is not None}
    process = subprocess.Popen(
        argv, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    _running.add(process)
    _give_way(process)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.communicate()
        raise
    finally:
        _running.discard(process)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _give_way(process: subprocess.Popen[str]) -> None:
    """Linux shares cores out by session (autogroup) before it looks at priorities: so each job has one of its own."""
    with contextlib.suppress(OSError):  # systems without it, or that let only root take a low priority back
        Path(f"/proc/{process.pid}/autogroup").write_text("0" if _waited.is_set() else str(LOWEST))


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(process.pid)
        for each in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


class Background:
    """The jobs of a session, by the id of the test that waits for each, in the order in which they run."""

    def __init__(self, jobs: Mapping[str, Callable[[], Any]]) -> None:
        _environment.update(os.environ)
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
        if result.done():
            return result.result()
        if self._threads < AT_ONCE:
            self.begin()
        self._hurry(_waited.set)
        try:
            return result.result()
        finally:
            self._hurry(_waited.clear)

    @staticmethod
    def _hurry(change: Callable[[], None]) -> None:
        change()
        for process in list(_running):
            _give_way(process)

    def end(self) -> None:
        self._left.clear()
        for process in list(_running):
            _kill(process)
