"""`manage.py node`: heartbeats, engines and the job worker of this host. SIGTERM ends it and leaves engines serving."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import IO, Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from tursiops.fleet import agent, services, wake
from tursiops.fleet.backends.local import LocalBackend
from tursiops.fleet.decide import Limits
from tursiops.fleet.heart import Heart
from tursiops.fleet.models import Node
from tursiops.fleet.worker import JobWorker
from tursiops.jobs.models import Job, JobState

log = structlog.get_logger(__name__)

WORKER_WAITS_S = 60.0


class Command(BaseCommand):
    help = "Runs this host's part of the fleet: heartbeats, engine instances, the job worker."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default="127.0.0.1", help="address by which gateways reach engines here")
        parser.add_argument("--drain-seconds", type=float, default=Limits.drain_s, help="time that a drain may take")
        parser.add_argument("--no-worker", action="store_true", help="run no jobs on this host")
        parser.add_argument(
            "--stop-engines", action="store_true", help="end all engines and the job worker of this host, then exit"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        run_dir = Path(settings.RUN_DIR)
        backend = LocalBackend(run_dir / "instances")
        worker = JobWorker(run_dir, settings.NODE_NAME)
        with OnlyOne(run_dir / "node.lock"):
            if options["stop_engines"]:
                self._stop_engines(backend, worker, min(options["drain_seconds"], 10.0))
            else:
                _serve(backend, None if options["no_worker"] else worker, options)

    def _stop_engines(self, backend: LocalBackend, worker: JobWorker, drain_s: float) -> None:
        worker.stop()
        count = agent.stop_engines(backend, drain_s)
        try:
            node = Node.objects.filter(name=settings.NODE_NAME).first()
            if node is not None:
                agent.mark_stopped_with_platform(node)
        except (DatabaseError, InterfaceError) as error:  # the engines are stopped; the next start finds out
            log.warning("node.rows_not_updated", error=str(error))
        self.stdout.write(f"{count} engines stopped.")


def _serve(backend: LocalBackend, worker: JobWorker | None, options: dict[str, Any]) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    node = _register(options["address"], stop)
    if node is None:
        return
    heart = Heart(node, Path(settings.DATA_DIR), stop)
    heart.start()
    loop = agent.NodeAgent(node, backend, Limits(drain_s=options["drain_seconds"]))
    waker = wake.Waker(wake.node_channel(node.name))
    log.info("node.started", node=node.name, epoch=node.epoch, run_folders=len(backend.runs()))
    since = time.monotonic()
    while not stop.is_set():
        pause = _tick(loop)
        if worker is not None and _worker_is_due(loop, since):
            worker.ensure()
            since = float("-inf")
        _sleep(loop, waker, pause, stop)
    loop.close()
    waker.close()
    if heart.superseded:
        raise CommandError(f"Another process has taken the name {node.name}; this one ends, the engines go on.")
    if worker is not None:
        worker.stop()
    log.info("node.stopped", node=node.name, engines_left_running=loop.engines)


def _register(address: str, stop: threading.Event) -> Node | None:
    """The node's row with its new epoch. Waits for the database; None if told to stop meanwhile."""
    while not stop.is_set():
        try:
            return services.node_started(name=settings.NODE_NAME, address=address)
        except (DatabaseError, InterfaceError) as error:
            log.warning("node.waits_for_database", error=str(error))
            connection.close()
            stop.wait(2)
    return None


def _tick(loop: agent.NodeAgent) -> float:
    """One round. Without a database nothing is decided: engines go on as they are."""
    try:
        close_old_connections()
        return loop.tick()
    except (DatabaseError, InterfaceError) as error:
        log.warning("node.database_away", error=str(error))
        connection.close()
        return agent.TICK_S


def _worker_is_due(loop: agent.NodeAgent, since: float) -> bool:
    """Its first start waits for engines that load, where no job waits for it: on a small machine it would take a
    quarter of their processors for several seconds. `since`: monotonic time of the node's start."""
    if not loop.loading or time.monotonic() - since > WORKER_WAITS_S:
        return True
    try:
        return Job.objects.filter(state=JobState.QUEUED).exists()
    except (DatabaseError, InterfaceError):
        return False


def _sleep(loop: agent.NodeAgent, waker: wake.Waker, pause: float, stop: threading.Event) -> None:
    end = time.monotonic() + pause
    while not stop.is_set() and (left := end - time.monotonic()) > 0:
        if waker.wait(min(left, 1.0)) or loop.something_ended():
            return


class OnlyOne:
    """Holds a lock that the kernel releases with the process, so that two node processes never share a data folder."""

    def __init__(self, path: Path, patience_s: float = 15.0) -> None:
        self._path, self._patience_s = path, patience_s
        self._file: IO[str] | None = None

    def __enter__(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+")
        end = time.monotonic() + self._patience_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    self._file.seek(0)
                    holder = self._file.read().strip() or "unknown"
                    raise CommandError(f"Another node process (pid {holder}) runs here. Stop it first.") from None
                time.sleep(0.1)
        os.ftruncate(self._file.fileno(), 0)
        with contextlib.suppress(OSError):  # a full disk: the number is for people alone
            os.write(self._file.fileno(), str(os.getpid()).encode())

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
