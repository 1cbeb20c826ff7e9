"""Kinds of which one job at a time runs on a machine: the others wait in the queue and say so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from tursiops.core.models import Event
from tursiops.core.registry import job_kinds
from tursiops.jobs import kinds, orphans, queue, runner, services, turns
from tursiops.jobs.models import Job, JobState
from tursiops.jobs.run import Outcome

from tests import factories

ALONE, BESIDE = "test.alone", "test.beside"


@pytest.fixture(autouse=True)
def two_kinds(monkeypatch, tmp_path) -> Iterator[None]:
    monkeypatch.setattr(orphans, "folder", lambda: tmp_path)
    alone = kinds.JobKind(ALONE, "Alone", run=lambda run: Outcome({}), alone=True)
    beside = kinds.JobKind(BESIDE, "Beside", run=lambda run: Outcome({}))
    with job_kinds.register_temporarily(ALONE, alone), job_kinds.register_temporarily(BESIDE, beside):
        yield


@pytest.fixture
def sent(monkeypatch) -> list:
    """Ids of the messages that would have gone to Celery."""
    ids: list = []
    monkeypatch.setattr(queue, "send", ids.append)
    return ids


def at_work(team, kind: str = ALONE, node: str = "", state: JobState = JobState.RUNNING) -> Job:
    lease = timezone.now() + services.LEASE
    fields = {"node_name": node or settings.NODE_NAME, "attempt": 1, "lease_owner": "w", "lease_expires_at": lease}
    return factories.make_job(team, kind=kind, state=state, **fields)


def queued(team, kind: str = ALONE) -> Job:
    return factories.make_job(team, kind=kind, state=JobState.QUEUED)


def claimed(job: Job) -> bool:
    return services.claim_job(job_id=job.pk, owner="me") is not None


@pytest.mark.django_db
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELLING])
def test_who_waits_stays_queued_and_says_so_once(team, sent, state):
    first, second = at_work(team, state=state), queued(team)
    assert not claimed(second)
    assert not claimed(second)
    second.refresh_from_db()
    assert (second.state, second.reason, second.attempt) == (JobState.QUEUED, turns.WAITING, 0)
    told = Event.objects.filter(subject_id=second.pk)
    assert [event.payload["reason"] for event in told] == [turns.WAITING]
    Job.objects.filter(pk=first.pk).update(state=JobState.SUCCEEDED)
    assert claimed(second)
    second.refresh_from_db()
    assert (second.state, second.reason) == (JobState.RUNNING, "")


@pytest.mark.django_db
def test_other_machines_and_other_kinds_are_not_waited_for(team, sent):
    at_work(team, node="elsewhere")
    at_work(team, kind=BESIDE)
    assert claimed(queued(team))
    assert claimed(queued(team, BESIDE))
    assert claimed(queued(team, BESIDE))


@pytest.mark.django_db
def test_at_the_end_of_one_the_first_that_was_asked_for_is_sent(team, sent):
    running, later, sooner = queued(team), queued(team), queued(team)
    Job.objects.filter(pk=sooner.pk).update(created_at=later.created_at - timedelta(minutes=1))
    Job.objects.filter(pk=running.pk).update(created_at=later.created_at - timedelta(minutes=2))
    runner.run_job(running.pk)
    running.refresh_from_db()
    assert (running.state, sent) == (JobState.SUCCEEDED, [sooner.pk])
    beside, _ = queued(team, BESIDE), queued(team, BESIDE)
    runner.run_job(beside.pk)
    assert len(sent) == 1


@pytest.mark.django_db
def test_who_waits_is_sent_again_where_nobody_does_so(team, sent):
    at_work(team)
    job = queued(team)
    assert not claimed(job)
    services.reap_lost_jobs()
    assert sent == []
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    services.reap_lost_jobs()
    assert sent == [job.pk]


@pytest.mark.django_db(transaction=True)
def test_of_claims_at_the_same_time_one_is_made(team, sent):
    jobs, start, made = [queued(team) for _ in range(4)], threading.Barrier(4), []

    def claim(job: Job) -> None:
        start.wait(timeout=20)
        made.append(claimed(job))
        connection.close()

    threads = [threading.Thread(target=claim, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(made) == [False, False, False, True]
