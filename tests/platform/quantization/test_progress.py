"""How far a job is told to be, and how long it will take."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.jobs.models import Job, JobMetric, JobState
from tursiops.quantization import progress

pytestmark = pytest.mark.django_db


def test_the_bar_says_what_is_measured(started):
    job = Job.objects.get(pk=started().job_id)
    job.state, job.started_at, job.progress_text = JobState.RUNNING, timezone.now(), "perplexity, window 1 of 20"
    for share, phase in ((0.71, "write"), (0.8, "evaluate_base"), (0.9, "evaluate")):
        job.progress = share
        assert (progress.shown(job) or {})["phase"] == phase


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
