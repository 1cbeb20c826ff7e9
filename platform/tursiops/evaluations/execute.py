"""The job kind `evaluations.run`: each part of the suite in a child of its own (`python -m evaluation …`), in a folder
that outlives the worker, so that the next attempt goes on where the last one was cut off."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, connection

from engines.protocol import ChildError
from tursiops.deployments.derive import DeploymentState
from tursiops.deployments.models import Deployment, Desired
from tursiops.deployments.rows import derived_state
from tursiops.evaluations import access, results, runs, selectors, specs, targets
from tursiops.evaluations.models import ON_TARGET, Run, Verdict
from tursiops.evaluations.targets import Target
from tursiops.jobs.kinds import JobKind
from tursiops.jobs.run import JobRun, LeaseLost, Outcome, WorkerStopping

log = structlog.get_logger(__name__)

LOOK_AT_TARGET_S = 2.0
_SERVING = (DeploymentState.READY, DeploymentState.DEGRADED)


def run(run: JobRun) -> Outcome:
    row = selectors.runs_in_full().filter(job=run.job).first()
    if row is None:
        raise ChildError("run_gone", "the run was deleted", "Start it again.")
    target = targets.of(row)
    if target is None:
        raise ChildError("target_gone", f"the target {row.target_name} was deleted", "Choose another target.")
    targets.require_one_key(target, specs.served_names(row.suite_version.spec))
    _refuse_if_shared(row, target)
    _remember_target(row, target)
    try:
        endpoint = targets.endpoint_spec(target)
        with access.opened(row, target, endpoint["url"], run.look_after) as key:
            _measure(run, row, target, endpoint, key)
    except (LeaseLost, WorkerStopping):
        raise  # another attempt goes on with the folder
    except Exception:
        results.take_in(row)  # a cancelled or failed run keeps what it measured
        raise
    taken = results.take_in(row, progress=lambda done: run.look_after())
    results.remove_folder(row)
    reason = taken.reason
    if not taken.complete:
        reason = f"It ended before it had measured all that was asked. {reason}".strip()
    return Outcome(
        {"run": str(row.pk), "verdict": taken.verdict, "complete": taken.complete, "reason": reason},
        verdict="failed" if taken.complete and taken.verdict == Verdict.FAIL else "ok",
    )


def _refuse_if_shared(row: Run, target: Target) -> None:
    """A run that was retried by hand did not stand in line: it yields to the later one that did, never that to it."""
    later = selectors.on_target(target).filter(state__in=ON_TARGET, created_at__gt=row.created_at)
    other = later.exclude(pk=row.pk).first()
    if other is not None:
        raise ChildError(
            "target_busy",
            f"the run of {other.suite.name} is on {target.name}: two at once would spoil both",
            "Wait for its end, then start this one again.",
        )


def _remember_target(row: Run, target: Target) -> None:
    """What is measured is the revision that serves now. Raises ChildError where nothing does."""
    if target.deployment is None:
        return
    deployment = target.deployment
    derived = derived_state(deployment)
    if derived.state not in _SERVING:
        why = f"{deployment.name} does not serve: it is {derived.state}. {derived.reason}".strip()
        raise ChildError("target_not_ready", why, "Start it, and run this again when it is ready.")
    revision = deployment.current
    assert revision is not None  # a deployment that serves has one
    if row.revision_number not in (None, revision.number) and results.folder(row).exists():
        results.remove_folder(row)  # an attempt before measured another revision
    row.revision_number, row.version = revision.number, revision.version
    row.save(update_fields=["revision_number", "version", "updated_at"])


def _measure(run: JobRun, row: Run, target: Target, endpoint: dict[str, Any], key: str) -> None:
    parts = [part for part in specs.RUN_PARTS if row.suite_version.spec.get(part)]
    gateway = targets.gateway_spec()
    watch = TargetWatch(row, target)
    variables = {targets.KEY_VARIABLE: key} if key else {}
    for index, part in enumerate(parts):
        spec = row.suite_version.spec[part]
        whole = specs.for_run(part, spec, endpoint=endpoint, gateway=gateway, team=row.team, seed=row.seed)
        span = (index / len(parts), (index + 1) / len(parts))
        argv = command(part, whole, results.folder(row) / part)
        run.child(argv, {}, span=span, variables=variables, watch=watch)


def command(part: str, spec: dict[str, Any], folder: Path) -> list[str]:
    """The child's words; its spec lies in the folder. A folder with a result goes on from it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "evaluation", "run", "--progress", "json"]
    if (folder / results.RESULT).exists():
        return [*words, "--resume", str(folder)]
    path = folder / "asked.json"
    path.write_text(json.dumps(spec))
    return [*words, str(path), "--out", str(folder)]


class TargetWatch:
    """Ends the run, with what it has measured, when the deployment under it goes away or becomes another, or when it
    is at work for longer than its suite can take."""

    def __init__(self, row: Run, target: Target) -> None:
        self._run = row.pk
        self._deployment = target.deployment
        self._revision = row.revision_number
        self._limit_s = specs.time_limit_s(row.suite_version.spec)
        self._began_at = self._looked_at = time.monotonic()

    def __call__(self) -> None:
        """Raises ChildError."""
        now = time.monotonic()
        if now - self._began_at > self._limit_s:
            raise ChildError(
                "too_long",
                f"it was still at work after {self._limit_s / 60:.0f} minutes, longer than its suite should take",
                "Ask less of it (fewer levels or rows, a lower steady.max_s), or see why its target is so slow.",
            )
        if self._deployment is None or now - self._looked_at < LOOK_AT_TARGET_S:
            return
        self._looked_at = now
        try:
            self._look_at(self._deployment)
        except (DatabaseError, InterfaceError) as error:  # JobRun says for how long work goes on without it
            connection.close()
            log.warning("evaluation.database_away", run=str(self._run), error=str(error))

    def _look_at(self, deployment: Deployment) -> None:
        name = deployment.name
        now = Deployment.objects.filter(pk=deployment.pk).values_list("desired", "current__number").first()
        if now is None or now[0] != Desired.RUNNING:
            how = "deleted" if now is None or now[0] == Desired.DELETED else now[0]
            raise ChildError("target_gone", f"{name} was {how} while it was measured", "Start it, then run this again.")
        if now[1] != self._revision:
            raise ChildError(
                "target_changed",
                f"{name} went from revision {self._revision} to {now[1]} while it was measured",
                "Run this again: figures of two revisions are figures of neither.",
            )


def kind() -> JobKind:
    return JobKind(
        name=runs.KIND,
        label="Evaluate",
        run=run,
        on_state=runs.on_state,
        spec_schema={
            "type": "object",
            "properties": {"run": {"type": "string"}},
            "required": ["run"],
            "additionalProperties": False,
        },
    )
