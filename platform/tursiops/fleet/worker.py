"""The job worker, a child of the node process. It is started again when it dies, and adopted after a node's death.

Jobs have a pool and a queue of their own, so that no job ever keeps an engine waiting for its stop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import structlog

from tursiops.fleet.backends import identity
from tursiops.fleet.backends.local import python_path
from tursiops.settings.env import service_environment

log = structlog.get_logger(__name__)

CONCURRENCY = 4
_GRACE_S = 5.0


class JobWorker:
    def __init__(self, run_dir: Path, node_name: str) -> None:
        self._folder = run_dir / "worker"
        self._node_name = node_name
        self._child: subprocess.Popen[bytes] | None = None
        self._starts: list[float] = []
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "celery", "-A", "tursiops", "worker", "-Q", "jobs", "-P", "threads"),
            *("-c", str(CONCURRENCY), "-n", f"jobs@{self._node_name}", "--without-mingle", "--without-gossip"),
            *("--loglevel", "INFO"),
        ]

    def ensure(self) -> None:
        """Start it if it does not run; at most one start in 5 s, so that a broken one does not eat the processor."""
        if self._running() is not None:
            return
        now = time.monotonic()
        if self._starts and now - self._starts[-1] < _GRACE_S:
            return
        self._starts = [*self._starts[-9:], now]
        try:
            self._start()
        except OSError as error:  # a full disk; engines and heartbeats go on without it
            log.warning("worker.not_started", error=str(error))

    def _start(self) -> None:
        with (self._folder / "worker.log").open("ab") as out:
            self._child = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=service_environment(python_path()),
                start_new_session=True,
            )
        with contextlib.suppress(psutil.NoSuchProcess):
            started = identity.start_time(self._child.pid)
            try:
                identity.write_launch(self._folder, identity.Launch("worker", 0, self._child.pid, started))
            except OSError:  # nobody would find it again
                identity.end_group(self._child.pid, started)
                self._child.wait()
                raise
        log.info("worker.started", pid=self._child.pid, earlier_starts=len(self._starts) - 1)

    def stop(self) -> None:
        """Ask it to end, wait, end it. A job cut off here is noticed by its lease and runs again."""
        running = self._running()
        if running is None:
            return
        pid, started = running
        for number, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGQUIT, 2.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            end = time.monotonic() + patience
            while time.monotonic() < end:
                if self._child is not None:
                    self._child.poll()
                if not identity.is_alive(pid, started):
                    break
                time.sleep(0.1)
        identity.end_group(pid, started)
        if self._child is not None:
            self._child.wait(5)

    def _running(self) -> tuple[int, float] | None:
        """(pid, start time) of our child, or of the one that a dead node process left behind."""
        if self._child is not None:
            self._child.poll()
        launch = identity.launch_of(self._folder)
        if launch is not None and identity.is_alive(launch.pid, launch.pid_start_time):
            return launch.pid, launch.pid_start_time
        return None
