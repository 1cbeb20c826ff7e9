"""What a kind of job is: how it runs in a worker, and what its end means for its subject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jsonschema
from django.utils.module_loading import import_string

from tursiops.core.errors import TursiopsError
from tursiops.core.registry import job_kinds

if TYPE_CHECKING:
    from tursiops.jobs.models import Job
    from tursiops.jobs.run import JobRun, Outcome


def _nothing(job: Job) -> None:
    pass


@dataclass(frozen=True)
class JobKind:
    """`run` works in a worker's thread and leaves everything heavy to `JobRun.child`; it may be run again after a
    loss, so it must be idempotent. `on_state` is called in the transaction of each change of state. alone: one at a
    time on a machine, the others stay queued (`jobs.turns`)."""

    name: str
    label: str
    run: Callable[[JobRun], Outcome]
    on_state: Callable[[Job], None] = _nothing
    spec_schema: dict[str, Any] = field(default_factory=dict)
    max_attempts: int = 3
    alone: bool = False


def register(name: str, factory: str, *, origin: str) -> None:
    """`factory` is the dotted path of a function that returns the kind. It is imported when first needed: most
    processes run no job, and a kind imports all that its work needs."""
    job_kinds.register(name, factory, origin=origin)


def get(name: str) -> JobKind:
    """Raises NotFound, with the kinds that exist."""
    found = job_kinds.get(name)
    if isinstance(found, str):
        found = import_string(found)()
    return found if isinstance(found, JobKind) else _of_plugin(name, found)


def _of_plugin(name: str, kind: Any) -> JobKind:
    """A plugin's kind (plugins.api.JobKind) is one child that gets the job's spec."""

    def run(run: JobRun) -> Outcome:
        return run.child(kind.command(), {"spec": run.job.spec, "workdir": str(run.workdir)})

    return JobKind(name=name, label=kind.label, run=run, spec_schema=kind.spec_schema())


def check_spec(kind: JobKind, spec: dict[str, Any]) -> None:
    """Raises TursiopsError naming the field of `spec` that the kind's JSON Schema refuses."""
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(kind.spec_schema).iter_errors(spec))
    if error is not None:
        where = ".".join(map(str, error.absolute_path)) or "spec"
        raise TursiopsError(f"{where}: {error.message}", fields={where: [error.message]})
