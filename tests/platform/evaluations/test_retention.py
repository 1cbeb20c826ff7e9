"""What is kept of old runs, and for how long."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.evaluations import results, retention
from tursiops.evaluations.models import Run, RunFile, RunState

from evaluation.schema import encode
from tests import factories
from tests.platform.evaluations.conftest import document, worked

pytestmark = pytest.mark.django_db


def old(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now() - timedelta(days=91))
    return run


def test_files_and_key_of_old_runs_go_and_figures_stay(started, children, settings):
    first, second = old(worked(started())), worked(started())
    baseline = old(worked(started()))
    assert retention.clean_up() == 1
    assert retention.clean_up() == 0
    first.refresh_from_db()
    assert (first.files.count(), first.key, bool(first.figures)) == (0, None, True)
    assert first.files_removed_at is not None
    assert RunFile.objects.filter(run=second).count() == RunFile.objects.filter(run=baseline).count() == 2


def test_folders_that_nothing_goes_on_with_are_removed(team, children):
    running, broken, fresh = (factories.make_run(team=team, state=state) for state in ("running", "errored", "errored"))
    aged = time.time() - retention.FOLDER_LIFETIME_S - 60
    for run in (running, broken, fresh):
        part = results.folder(run) / "load"
        part.mkdir(parents=True)
        (part / results.RESULT).write_bytes(encode(document()))
        if run is not fresh:
            os.utime(results.folder(run), (aged, aged))
    stranger = results.root() / "notes"
    stranger.mkdir()
    retention.clean_up()
    assert results.folder(running).exists()
    assert results.folder(fresh).exists()
    assert not results.folder(broken).exists()
    assert stranger.exists()
    assert [file.name for file in broken.files.all()] == ["load/result.json"]  # its worker was lost before it could
    assert Run.objects.get(pk=broken.pk).state == RunState.ERRORED
