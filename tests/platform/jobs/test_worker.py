"""A real Celery worker, as `manage.py node` starts it, killed without warning while a job runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from tursiops.core.audit import Actor
from tursiops.jobs import queue, services
from tursiops.jobs.models import Job, JobState

from tests import factories
from tests.processes import alive

ROOT = Path(__file__).parents[3]
DUMMY = ROOT / "tests" / "dummy_plugin"
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def wait_for(what: str, condition, seconds: float = 120.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def database_url() -> str:
    """Of the test database; empty for SQLite, whose file is the data folder's in tests too."""
    base = connection.settings_dict
    if connection.vendor == "sqlite":
        return ""
    host = base["OPTIONS"].get("host") or base["HOST"]
    return f"postgres://{base['USER']}@/{base['NAME']}?host={quote(host, safe='/')}"


@pytest.fixture
def start_worker():
    """`start_worker()`: a worker process on the test database; whatever is left of them dies with the test."""
    environment = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "tursiops.settings.test",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "platform"), str(ROOT), str(DUMMY)]),
    }
    workers: list[subprocess.Popen] = []

    def start() -> subprocess.Popen:
        argv = ["-m", "celery", "-A", "tursiops", "worker", "-Q", "jobs", "-P", "threads", "-c", "2", "-l", "warning"]
        worker = subprocess.Popen([sys.executable, *argv], env=environment, cwd=ROOT, start_new_session=True)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        if worker.poll() is None:
            worker.kill()
        worker.wait()
    import redis

    redis.Redis.from_url(settings.REDIS_URL).delete("jobs", "unacked", "unacked_index")


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return job.state


def starts(mark: Path) -> list[list[int]]:
    return [[int(pid) for pid in line.split()] for line in mark.read_text().splitlines()] if mark.exists() else []


def test_job_of_a_killed_worker_runs_once_more_and_its_children_are_gone(start_worker, tmp_path):
    mark = tmp_path / "mark"
    job = factories.make_job(kind="dummy.act", title="Act", spec={"act": "sleep", "seconds": 1.5, "mark": str(mark)})
    queue.send(job.pk)
    worker = start_worker()
    wait_for("first start", lambda: starts(mark))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert state_of(job) == JobState.RUNNING
    assert services.reap_lost_jobs() == 0, "the lease still lives"
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))  # 30 s later
    assert services.reap_lost_jobs() == 1
    assert not any(alive(pid) for pid in starts(mark)[0])
    queue.send(job.pk)  # a duplicate of the reaper's message
    start_worker()
    wait_for("second end", lambda: state_of(job) == JobState.SUCCEEDED)
    assert job.attempt == 2
    assert len(starts(mark)) == 2
    assert job.report == {"did": "sleep"}
    assert "queued again" not in job.reason


def test_cancel_reaches_the_children_of_a_worker_and_a_stopped_worker_gives_back(start_worker, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    cancelled, given_back = (
        factories.make_job(kind="dummy.act", title="Act", spec={"act": "sleep", "seconds": 60, "mark": str(mark)})
        for mark in (first, second)
    )
    queue.send(cancelled.pk)
    queue.send(given_back.pk)
    worker = start_worker()
    wait_for("both starts", lambda: starts(first) and starts(second))
    services.cancel_job(job=cancelled, actor=Actor("alice"))
    wait_for("cancel", lambda: state_of(cancelled) == JobState.CANCELLED, 30)
    assert not any(alive(pid) for pid in starts(first)[0])
    memory = psutil.Process(worker.pid).memory_info().rss / 1e6
    assert memory < 250, f"an idle worker takes {memory:.0f} MB: does it import torch?"
    worker.send_signal(signal.SIGTERM)
    wait_for("end of the worker", lambda: worker.poll() is not None, 60)
    assert (state_of(given_back), given_back.attempt) == (JobState.QUEUED, 0)
    assert not any(alive(pid) for pid in starts(second)[0])
