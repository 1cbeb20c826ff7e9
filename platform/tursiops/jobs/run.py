"""The work of one attempt of one job, in a worker's thread: children started, heard and stopped under the lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from django.db import DatabaseError, connection

from engines.protocol import ChildError
from tursiops.jobs import live, orphans, services
from tursiops.jobs.child import Child
from tursiops.jobs.logs import LiveLog
from tursiops.jobs.models import Job, JobMetric, JobState
from tursiops.settings import env

log = structlog.get_logger(__name__)

RENEW_S = 5.0
LOOK_S = 1.0  # how soon a cancel is noticed
PROGRESS_S = 0.5
stopping = threading.Event()  # set when this worker is being stopped


def _nothing() -> None:
    pass


class Cancelled(Exception):
    """The job was cancelled; its children are gone."""


class LeaseLost(Exception):
    """Another may have the job; its children are gone and nothing more may be written."""


class WorkerStopping(Exception):
    """This worker ends; the job must be given back."""


@dataclass(frozen=True)
class Outcome:
    data: dict[str, Any]
    verdict: str = "ok"  # "failed": a gate was not met


@dataclass
class JobRun:
    """What a JobKind's `run` gets."""

    job: Job
    owner: str
    workdir: Path  # this job's own folder; gone when the job has ended
    log: LiveLog
    _progress: tuple[float, str] | None = None
    _said: tuple[float, str] = (0.0, "")
    _metrics: list[JobMetric] = field(default_factory=list)
    _wrote_at: float = 0.0
    _looked_at: float = 0.0
    _renewed_at: float = field(default_factory=time.monotonic)

    def child(
        self,
        argv: list[str],
        spec: dict[str, Any],
        *,
        span: tuple[float, float] = (0.0, 1.0),
        variables: dict[str, str] | None = None,
        watch: Callable[[], None] = _nothing,
    ) -> Outcome:
        """Run one child to its end. Its progress 0…1 counts as `span` of the job's.

        `variables` join its environment; `watch` is called several times a second, and a ChildError of its ends the
        child. Raises ChildError with the child's own words, or code "crashed" with its last lines; Cancelled,
        LeaseLost, WorkerStopping.
        """
        orphans.end(self.job)
        child = Child(argv, spec, env={**env.job_environment(), **(variables or {})}, cwd=self.workdir)
        orphans.note(self.job, child.pid)
        try:
            return self._follow(child, span, watch)
        finally:
            child.close()
            orphans.forget(self.job)
            self.flush()

    def progress(self, value: float, text: str = "") -> None:
        self._progress = (min(max(value, 0.0), 1.0), text)
        if time.monotonic() - self._wrote_at >= PROGRESS_S:
            self.flush()

    def flush(self) -> None:
        """Write what was said since the last time: at most twice a second, and at the end of each child."""
        self._wrote_at = time.monotonic()
        said, self._progress = self._progress, None
        metrics, self._metrics = self._metrics, []
        self._said = said or self._said
        try:
            if said:
                services.record_progress(job_id=self.job.pk, owner=self.owner, progress=said[0], text=said[1])
            JobMetric.objects.bulk_create(metrics)
            if said or metrics:
                live.push_progress(self.job, *self._said, points=[(it.name, it.step, it.value) for it in metrics])
        except DatabaseError as error:
            self._database_away(error)

    def look_after(self) -> None:
        """Keep the lease; raise if the work must stop. Cheap enough to be called several times a second."""
        if stopping.is_set():
            raise WorkerStopping
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        try:
            if now - self._renewed_at >= RENEW_S:
                if not services.renew_lease(job_id=self.job.pk, owner=self.owner):
                    raise LeaseLost
                self._renewed_at = now
            state = Job.objects.filter(pk=self.job.pk, lease_owner=self.owner).values_list("state", flat=True).first()
        except DatabaseError as error:
            self._database_away(error)
            return
        if state is None:
            raise LeaseLost
        if state == JobState.CANCELLING:
            raise Cancelled

    def _database_away(self, error: DatabaseError) -> None:
        """Work goes on without the database as long as the lease lasts."""
        connection.close()
        log.warning("job.database_away", job=str(self.job.pk), error=str(error))
        if time.monotonic() - self._renewed_at > services.LEASE.total_seconds():
            raise LeaseLost from error

    def _follow(self, child: Child, span: tuple[float, float], watch: Callable[[], None]) -> Outcome:
        outcome: Outcome | None = None
        failure: ChildError | None = None
        try:
            while not child.done:
                self.look_after()
                watch()
                for said in child.read(0.25):
                    match said["type"]:
                        case "progress":
                            value = min(max(float(said["value"]), 0.0), 1.0)
                            self.progress(span[0] + value * (span[1] - span[0]), said.get("text", ""))
                        case "log":
                            self.log.write(said["text"])
                        case "metric":
                            self._metrics.append(
                                JobMetric(job=self.job, name=said["name"][:100], value=said["value"], step=said["step"])
                            )
                        case "report":
                            outcome = Outcome(said["data"], said["verdict"])
                        case "error":
                            failure = ChildError(
                                str(said.get("code", "error")), said["message"], str(said.get("hint", ""))
                            )
        except (Cancelled, LeaseLost, WorkerStopping, ChildError):
            child.stop()
            raise
        if failure is not None:
            raise failure
        if outcome is None:
            raise _crash(child)
        return outcome


def _crash(child: Child) -> ChildError:
    code = child.process.returncode
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} and no report"
    tail = "\n".join(child.last_lines)
    return ChildError(
        "crashed",
        f"The process {how}. {tail[-300:]}".strip(),
        "Signal 9 is often the kernel's: too little memory." if code == -9 else "The log has the whole story.",
    )
