"""How long what a run leaves is kept: files and chart points for TURSIOPS_EVALUATION_KEEP_DAYS, figures always."""

from __future__ import annotations

import shutil
import time
import uuid
from datetime import timedelta
from pathlib import Path

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tursiops.accounts.models import ApiKey
from tursiops.evaluations import results, selectors
from tursiops.evaluations.models import UNENDED, Baseline, Run, RunFile
from tursiops.jobs import queue
from tursiops.jobs.models import JobMetric

log = structlog.get_logger(__name__)

FOLDER_LIFETIME_S = 7 * 86400.0  # of a run that broke off: until then a retry can go on with it


def clean_up() -> int:
    """Remove old runs' files and keys, and folders that nothing goes on with. Idempotent; returns how many runs."""
    before = timezone.now() - timedelta(days=settings.EVALUATION_KEEP_DAYS)
    old = Run.objects.filter(finished_at__lt=before, files_removed_at=None).exclude(state__in=UNENDED)
    kept = Baseline.objects.values("run")
    removed = sum(_drop_files(run) for run in old.exclude(pk__in=kept).defer("results"))
    for folder in results.root().glob("*") if results.root().is_dir() else []:
        _look_at(folder)
    if removed:
        queue.send_garbage_collection()
    return removed


@transaction.atomic
def _drop_files(run: Run) -> int:
    """The key was revoked at the run's end; it is listed as long as its requests may be asked about."""
    RunFile.objects.filter(run=run).delete()
    JobMetric.objects.filter(job=run.job_id).delete()
    if run.key_id is not None:
        ApiKey.objects.filter(pk=run.key_id).exclude(revoked_at=None).delete()
    return Run.objects.filter(pk=run.pk).update(files_removed_at=timezone.now(), updated_at=timezone.now())


def _look_at(folder: Path) -> None:
    try:
        run = selectors.runs().filter(pk=uuid.UUID(folder.name)).first()
    except ValueError:  # not one of ours
        return
    if run is not None and (run.state in UNENDED or folder.stat().st_mtime > time.time() - FOLDER_LIFETIME_S):
        return
    log.info("evaluation.folder_removed", run=folder.name)
    if run is not None and not run.files.exists():
        results.take_in(run)  # its worker was lost before it could
    shutil.rmtree(folder, ignore_errors=True)
