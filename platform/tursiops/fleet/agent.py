"""The node's loop: desired state in, engines started, followed, drained and swept up. Messages only wake it.

Rows and run folders are the truth; the memory of this object holds clocks only. So a node process that starts anew
adopts what runs, and one that dies leaves the engines serving.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from tursiops.core.store import StoreError
from tursiops.deployments.models import Desired, Instance, InstanceState
from tursiops.deployments.observed import instance_observed, instance_starting
from tursiops.deployments.specs import local_of_instance, spec_of_instance
from tursiops.fleet.backends import identity
from tursiops.fleet.backends.base import LaunchError, Observation
from tursiops.fleet.backends.local import LocalBackend
from tursiops.fleet.caches import EngineCaches
from tursiops.fleet.decide import Limits, after_failure, decide, sentence
from tursiops.fleet.models import Node
from tursiops.secrets import new_instance_token

log = structlog.get_logger(__name__)

TICK_S = 5.0
BUSY_TICK_S = 0.5  # while something starts or drains
_MOVING = {InstanceState.STARTING, InstanceState.DRAINING}


class NodeAgent:
    def __init__(self, node: Node, backend: LocalBackend, limits: Limits | None = None) -> None:
        self.node = node
        self.backend = backend
        self.limits = limits or Limits()
        self.caches = EngineCaches(Path(settings.ENGINE_CACHE_DIR))
        self.actor = f"node:{node.name}"
        self._drains: dict[str, tuple[int, float]] = {}  # instance → (epoch told to drain, monotonic time)
        self._alive: dict[str, tuple[int, float]] = {}  # instance → (pid, start time) as last seen
        self._probes = ThreadPoolExecutor(8, thread_name_prefix="probe")
        self.loading = False  # at the last look, an engine was on its way to its first answer

    def tick(self) -> float:
        """One look at everything; seconds until the next is due."""
        rows = {str(row.pk): row for row in _rows_of(self.node)}
        ids = sorted({*rows, *self.backend.runs()})
        seen = [each for each in self._probes.map(self._observe, ids) if each is not None]
        self._alive = {each.instance_id: (each.pid, each.pid_start_time) for each in seen if each.alive}
        for observation in seen:
            self._handle(rows.get(observation.instance_id), observation)
        self.backend.limit_logs()
        self.caches.sweep(rows.values())
        self.loading = any(row.state == InstanceState.STARTING for row in rows.values())
        return self._pause(list(rows.values()))

    @property
    def engines(self) -> int:
        """How many were alive at the last look."""
        return len(self._alive)

    def something_ended(self) -> bool:
        """Cheap enough to ask each second: has a process that was alive at the last look gone?"""
        return any(not identity.is_alive(pid, started) for pid, started in self._alive.values())

    def close(self) -> None:
        self._probes.shutdown(wait=False, cancel_futures=True)

    def _observe(self, instance_id: str) -> Observation | None:
        """None where it can't be told (a disk that does not read): that is no proof of death, so nothing is done."""
        try:
            return self.backend.observe(instance_id)
        except OSError:
            log.exception("engine.not_observed", instance=instance_id)
            return None

    def _handle(self, row: Instance | None, seen: Observation) -> None:
        try:
            if row is None:
                self._sweep(seen)
            else:
                self._step(row, seen)
        except DatabaseError:
            raise
        except Exception:  # one instance that can't be handled must not stop the others
            log.exception("engine.not_handled", instance=seen.instance_id)

    def _step(self, row: Instance, seen: Observation) -> None:
        step = decide(row, seen, timezone.now(), self.limits)
        if step.act == "start":
            self._start(row)
            return
        if not instance_observed(instance=row, actor=self.actor, changes=step.changes):
            return  # the row has moved on: look again next time
        if step.act == "terminate":
            self._drain(seen)
        elif step.act == "kill":
            self.backend.kill(seen.instance_id)

    def _start(self, row: Instance) -> None:
        token = new_instance_token()
        if not instance_starting(instance=row, token=token, actor=self.actor):
            return
        try:
            local = local_of_instance(row, host=self._bind_host(), token=token, cache_dir=self.caches.folder(row))
            self.backend.start(spec_of_instance(row), local)
        except (LaunchError, StoreError, ValueError) as error:
            log.warning("engine.not_started", instance=str(row.pk), error=str(error))
            changes = after_failure(row, sentence(str(error)), timezone.now(), self.limits)
            instance_observed(instance=row, actor=self.actor, changes=changes)

    def _bind_host(self) -> str:
        """Loopback, unless the gateway reaches this node by another address."""
        return self.node.address or "127.0.0.1"

    def _drain(self, seen: Observation) -> None:
        """SIGTERM once per start, SIGKILL at the limit."""
        epoch, since = self._drains.get(seen.instance_id, (0, 0.0))
        if epoch != seen.epoch or not since:
            self._drains[seen.instance_id] = (seen.epoch, time.monotonic())
            self.backend.terminate(seen.instance_id)
        elif time.monotonic() - since > self.limits.drain_s:
            log.warning("engine.drain_limit", instance=seen.instance_id, after_s=self.limits.drain_s)
            self.backend.kill(seen.instance_id)

    def _sweep(self, seen: Observation) -> None:
        """A run folder without an instance here: its row is gone, or was placed elsewhere. End it and tidy up."""
        if seen.alive:
            log.info("engine.orphan", instance=seen.instance_id, pid=seen.pid)
            self._drain(seen)
        else:
            self.backend.kill(seen.instance_id)  # what the leader may have left in its group
            self.backend.forget(seen.instance_id)
            self._drains.pop(seen.instance_id, None)

    def _pause(self, rows: list[Instance]) -> float:
        now = timezone.now()
        pause = TICK_S
        for row in rows:
            moving = row.state in _MOVING or (row.desired != Desired.RUNNING and row.state != InstanceState.STOPPED)
            if moving or (row.state == InstanceState.SCHEDULED and row.next_start_at is None):
                return BUSY_TICK_S
            if row.state == InstanceState.SCHEDULED and row.next_start_at is not None:
                pause = min(pause, max(BUSY_TICK_S, (row.next_start_at - now).total_seconds()))
        return pause


def stop_engines(backend: LocalBackend, drain_s: float) -> int:
    """End every engine of this host: drain all, kill what is left at the limit. How many there were. No database."""
    alive = [seen.instance_id for seen in map(backend.observe, backend.runs()) if seen.alive]
    for instance_id in alive:
        backend.terminate(instance_id)
    end = time.monotonic() + drain_s
    left = list(alive)
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = [instance_id for instance_id in left if backend.observe(instance_id).alive]
    for instance_id in backend.runs():
        backend.kill(instance_id)
    return len(alive)


def mark_stopped_with_platform(node: Node) -> None:
    """After `stop_engines`: the instances start again with the platform, and no failure is counted."""
    for row in _rows_of(node):
        if row.desired == Desired.RUNNING and row.state in (*_MOVING, InstanceState.READY, InstanceState.UNREACHABLE):
            changes = {
                "state": InstanceState.SCHEDULED,
                "reason": "Stopped with the platform; it starts again with it.",
                "next_start_at": None,
                "pid": 0,
                "port": 0,
                "progress": 0.0,
            }
            instance_observed(instance=row, actor=f"node:{node.name}", changes=changes)


def _rows_of(node: Node) -> list[Instance]:
    versions = ("revision__version__model", "revision__draft_version__model")
    related = ("node", "deployment__team", "deployment__current__version__model", *versions)
    return list(Instance.objects.filter(node=node).select_related(*related))
