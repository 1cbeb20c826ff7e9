"""One quantization at a time on a machine: what waits says so, is cancelled, and goes on in the order of asking."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone
from tursiops.jobs import logs, orphans, run
from tursiops.jobs.models import Job, JobMetric, JobState
from tursiops.quantization import progress, turns

from tests import factories
from tests.platform.quantization.conftest import cancel_as_soon_as, ran

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(turns, "_LOOK_S", 0.0)
    monkeypatch.setattr(orphans, "folder", lambda: tmp_path)


@pytest.fixture
def taken() -> Iterator[object]:
    """The turn, held by another."""
    with (orphans.folder() / "quantization.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def test_who_waits_says_so_and_begins_when_the_turn_has_come(started, measured, taken, monkeypatch):
    row, seen = started(), []
    real = run.JobRun.look_after

    def look(self) -> None:
        if not seen:
            job = Job.objects.get(pk=row.job_id)
            seen.append(progress.shown(job))
            fcntl.flock(taken, fcntl.LOCK_UN)
        real(self)

    monkeypatch.setattr(run.JobRun, "look_after", look)
    job = ran(row)
    assert job.state == JobState.SUCCEEDED, job.reason
    assert (seen[0]["phase"], seen[0]["eta_s"]) == ("wait", None)
    assert turns.WAITING in logs.read(job, 0).text
    assert 0 < row.figures["seconds"] < 60


def test_a_cancel_ends_the_wait(started, measured, taken, monkeypatch):
    row = started()
    cancel_as_soon_as(monkeypatch, lambda job: True)
    job = ran(row)
    assert (job.state, job.reason) == (JobState.CANCELLED, "Cancelled by alice.")
    assert row.version_id is None
    assert not JobMetric.objects.filter(job=job, name=turns.BEGAN).exists()


def test_who_was_asked_for_first_comes_first(started):
    row = started()
    job = Job.objects.get(pk=row.job_id)
    other = factories.make_quantization(base=row.base).job
    fields = {"state": JobState.RUNNING, "kind": job.kind, "node_name": job.node_name}
    Job.objects.filter(pk=other.pk).update(created_at=job.created_at - timedelta(seconds=1), **fields)
    assert turns._behind(job)
    Job.objects.filter(pk=other.pk).update(created_at=job.created_at + timedelta(seconds=1))
    assert not turns._behind(job)
    Job.objects.filter(pk=other.pk).update(created_at=job.created_at - timedelta(seconds=1), node_name="elsewhere")
    assert not turns._behind(job)
    assert settings.NODE_NAME != "elsewhere"


def test_time_counts_from_the_turn(started):
    row = started()
    job = Job.objects.get(pk=row.job_id)
    job.state, job.progress, job.progress_text = JobState.RUNNING, 0.5, "layer 1 of 2"
    metric = JobMetric.objects.create(job=job, name=turns.BEGAN, value=0.0)
    job.started_at = metric.created_at - timedelta(seconds=600)
    shown = progress.shown(job)
    assert shown is not None
    assert shown["elapsed_s"] < 60
    job.progress = 0.8
    assert (progress.shown(job) or {})["phase"] == "evaluate_base"
    job.progress = 0.9
    assert (progress.shown(job) or {})["phase"] == "evaluate"


def test_time_that_is_left_follows_the_pace_of_measuring_once_the_files_are_made(started):
    """FP8 is made in seconds and measured in minutes: the bar alone said 12 s with two minutes to go."""
    job = Job.objects.get(pk=started().job_id)
    job.state, job.progress, job.progress_text = JobState.RUNNING, 0.76, "perplexity, window 6 of 20"
    metric = JobMetric.objects.create(job=job, name=progress.MEASURING, value=0.0)
    job.started_at = metric.created_at - timedelta(seconds=5)
    JobMetric.objects.filter(pk=metric.pk).update(created_at=metric.created_at - timedelta(seconds=25))
    job.started_at -= timedelta(seconds=25)
    assert (progress.shown(job) or {})["eta_s"] == pytest.approx(100, abs=10)


def test_time_that_is_left_after_a_kill_is_that_of_the_layers_that_are_still_to_be_made(started):
    """The text runs through twelve finished layers: the bar begins anew, and it once said 1 h 53 min of 7 min."""
    job = Job.objects.get(pk=started().job_id)
    job.state, job.progress = JobState.RUNNING, 0.03
    job.progress_text = "layer 1 of 30 is there: the text runs through it"
    now = timezone.now()
    job.started_at = now - timedelta(seconds=200)

    def told(name: str, value: float, age: float) -> None:
        metric = JobMetric.objects.create(job=job, name=name, value=value)
        JobMetric.objects.filter(pk=metric.pk).update(created_at=now - timedelta(seconds=age))

    told("layers_done", 12, 100)
    told("resumed_at", 12, 90)
    assert (progress.shown(job) or {})["eta_s"] is None
    told("layers_done", 13, 30)
    told("layers_done", 14, 10)
    job.progress, job.progress_text = 0.35, "layer 15 of 30"
    assert (progress.shown(job) or {})["eta_s"] == pytest.approx(20 * 30 * 0.65 / 0.7, rel=0.01)
