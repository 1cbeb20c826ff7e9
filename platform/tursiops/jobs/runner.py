"""`run_job`: claim, run, and write the end. Whatever happens in between, the job ends in a state with a reason."""

from __future__ import annotations

import os
import shutil
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from engines.protocol import ChildError
from tursiops.core.errors import TursiopsError
from tursiops.core.filestore import StoreError
from tursiops.jobs import kinds, orphans, services, turns
from tursiops.jobs.logs import LiveLog
from tursiops.jobs.models import Job, JobState
from tursiops.jobs.run import Cancelled, JobRun, LeaseLost, WorkerStopping

log = structlog.get_logger(__name__)


def run_job(job_id: uuid.UUID) -> None:
    """Run one attempt of a job, if it is there to be claimed. A second delivery of the message does nothing."""
    owner = f"{settings.NODE_NAME}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
    job = services.claim_job(job_id=job_id, owner=owner)
    if job is None:
        log.info("job.not_claimed", job=str(job_id))
        return
    workdir = orphans.folder() / f"{job.pk}.work"
    workdir.mkdir(exist_ok=True)
    live = LiveLog(job)
    try:
        live.write(f"attempt {job.attempt} of {job.max_attempts} on {job.node_name}")
        _attempt(job, owner, workdir, live)
    except LeaseLost:
        log.warning("job.lease_lost", job=str(job_id))
    except WorkerStopping:
        services.release_job(job_id=job.pk, owner=owner)
    finally:
        live.close()
        shutil.rmtree(workdir, ignore_errors=True)
        turns.send_next(job.kind)


def _attempt(job: Job, owner: str, workdir: Path, live: LiveLog) -> None:
    try:
        outcome = kinds.get(job.kind).run(JobRun(job, owner, workdir, live))
    except Cancelled:
        job.refresh_from_db()  # the reason says who cancelled
        _end(job, owner, live, JobState.CANCELLED, reason=job.reason)
    except (ChildError, StoreError, TursiopsError) as error:
        live.write(f"error: {error.message}")
        _errored(job, owner, live, error.code, error.message, error.hint)
    except (LeaseLost, WorkerStopping):
        raise
    except Exception as error:  # a fault of ours must end this job and not the worker
        live.write(traceback.format_exc())
        log.exception("job.fault", job=str(job.pk))
        _errored(job, owner, live, "internal", f"{type(error).__name__}: {error}", "The log has the traceback.")
    else:
        state = JobState.SUCCEEDED if outcome.verdict == "ok" else JobState.REJECTED
        _end(job, owner, live, state, report=outcome.data, reason=str(outcome.data.get("reason", "")))


def _errored(job: Job, owner: str, live: LiveLog, code: str, message: str, hint: str) -> None:
    error = {"code": code, "message": message, "hint": hint}
    _end(job, owner, live, JobState.ERRORED, reason=f"{_sentence(message)} {_sentence(hint)}".strip(), error=error)


def _sentence(text: str) -> str:
    """A child's words as people read them: with a capital and a full stop."""
    text = text.strip()
    if text[:1].islower() and text.split()[0].isalpha():  # not the name of a file or tensor
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _end(
    job: Job,
    owner: str,
    live: LiveLog,
    state: JobState,
    *,
    reason: str = "",
    report: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> None:
    try:
        log_sha256 = live.keep()
    except StoreError as full:
        log.warning("job.log_not_kept", job=str(job.pk), error=full.message)
        log_sha256 = None
    end: dict[str, Any] = {"state": state, "reason": reason, "report": report, "error": error, "log_sha256": log_sha256}
    ended = _written(lambda: services.finish_job(job_id=job.pk, owner=owner, **end))
    if ended is not None and log_sha256 is not None:
        live.path.unlink(missing_ok=True)


def _written(write: Callable[[], Job | None]) -> Job | None:
    """The result of hours must not be lost to a database that is away for a moment."""
    for pause_s in (0.5, 1.0, 2.0, 4.0, 8.0):
        try:
            return write()
        except (OperationalError, InterfaceError) as error:
            connection.close()
            log.warning("job.end_not_written", error=str(error), again_in_s=pause_s)
            time.sleep(pause_s)
    return write()
