"""State changes of jobs: each is a compare-and-set, leaves an event and an audit entry, and happens once."""

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.accounts.models import AuditEntry
from tursiops.core.audit import Actor
from tursiops.core.errors import Conflict, NotFound, TursiopsError
from tursiops.core.models import Event
from tursiops.core.registry import job_kinds
from tursiops.jobs import kinds, queue, services
from tursiops.jobs.models import ENDED, TRANSITIONS, Job, JobState
from tursiops.jobs.serializers import JobSerializer

from tests import factories

ALICE = Actor("alice")


@pytest.fixture
def sent(monkeypatch) -> list:
    """Ids of the messages that would have gone to Celery."""
    ids: list = []
    monkeypatch.setattr(queue, "send", ids.append)
    return ids


@pytest.fixture
def seen_states(db):
    """Registers kind "test.noop"; the list fills with the states that its on_state saw."""
    seen: list = []
    kind = kinds.JobKind(
        "test.noop",
        "Noop",
        run=lambda run: None,
        on_state=lambda job: seen.append(job.state),
        spec_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
    )
    with job_kinds.register_temporarily("test.noop", kind):
        yield seen


def running(team, **fields) -> Job:
    return factories.make_job(
        team,
        **{
            "kind": "test.noop",
            "state": JobState.RUNNING,
            "attempt": 1,
            "lease_owner": "w1",
            "lease_expires_at": timezone.now() + services.LEASE,
            **fields,
        },
    )


def test_enqueue_sends_after_commit(team, seen_states, sent, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        job = services.enqueue_job(team=team, actor=ALICE, kind="test.noop", title="Do it", spec={"n": 1})
        assert sent == []
    assert sent == [job.pk]
    event = Event.objects.get(team=team)
    assert (event.kind, event.subject_id, event.actor) == ("job.queued", job.pk, "alice")
    assert AuditEntry.objects.get(team=team).action == "job.queued"


def test_event_payload_is_the_list_row(team, seen_states, sent):
    job = services.enqueue_job(team=team, actor=ALICE, kind="test.noop", title="Do it", spec={})
    payload = Event.objects.get(team=team).payload
    assert payload == JobSerializer(Job.objects.get(pk=job.pk)).data


def test_enqueue_with_the_same_key_gives_the_same_job(team, other_team, seen_states, sent):
    def enqueue(owner):
        return services.enqueue_job(team=owner, actor=ALICE, kind="test.noop", title="t", spec={}, idempotency_key="k1")

    assert enqueue(team) == enqueue(team)
    assert enqueue(other_team) != enqueue(team)
    assert Job.objects.count() == 2


def test_enqueue_refuses_unknown_kind_and_bad_spec(team, seen_states, sent):
    with pytest.raises(NotFound) as unknown:
        services.enqueue_job(team=team, actor=ALICE, kind="test.nope", title="t", spec={})
    assert "test.noop" in unknown.value.hint
    with pytest.raises(TursiopsError, match="n: 'many' is not of type 'integer'") as bad:
        services.enqueue_job(team=team, actor=ALICE, kind="test.noop", title="t", spec={"n": "many"})
    assert bad.value.fields == {"n": ["'many' is not of type 'integer'"]}
    assert not Job.objects.exists()


def test_second_claim_gets_nothing(team, seen_states):
    job = factories.make_job(team, kind="test.noop")
    first = services.claim_job(job_id=job.pk, owner="w1")
    assert first is not None
    assert (first.state, first.attempt, first.lease_owner) == (JobState.RUNNING, 1, "w1")
    assert services.claim_job(job_id=job.pk, owner="w2") is None
    assert Event.objects.filter(kind="job.running").count() == 1
    assert seen_states == [JobState.RUNNING]


def test_only_the_owner_of_the_lease_may_finish(team, seen_states):
    job = running(team)
    assert services.finish_job(job_id=job.pk, owner="w2", state=JobState.SUCCEEDED) is None
    assert not services.renew_lease(job_id=job.pk, owner="w2")
    done = services.finish_job(job_id=job.pk, owner="w1", state=JobState.SUCCEEDED, report={"a": 1})
    assert done is not None
    assert (done.state, done.progress, done.report, done.lease_owner) == (JobState.SUCCEEDED, 1.0, {"a": 1}, "")
    assert services.finish_job(job_id=job.pk, owner="w1", state=JobState.ERRORED) is None


def test_cancel_of_a_queued_job_ends_it(team, seen_states):
    job = services.cancel_job(job=factories.make_job(team, kind="test.noop"), actor=ALICE)
    assert job.state == JobState.CANCELLED
    assert "alice" in job.reason
    assert job.finished_at is not None


def test_cancel_of_a_running_job_waits_for_its_processes_and_can_be_repeated(team, seen_states):
    job = services.cancel_job(job=running(team), actor=ALICE)
    assert job.state == JobState.CANCELLING
    assert services.cancel_job(job=job, actor=ALICE).state == JobState.CANCELLING
    assert seen_states == [JobState.CANCELLING]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_cancel_of_an_ended_job_is_a_conflict(team, seen_states, state):
    with pytest.raises(Conflict, match=state):
        services.cancel_job(job=factories.make_job(team, kind="test.noop", state=state), actor=ALICE)


@pytest.mark.parametrize("state", sorted(JobState.values))
def test_retry_follows_the_table(team, seen_states, sent, django_capture_on_commit_callbacks, state):
    job = factories.make_job(team, kind="test.noop", state=state, attempt=3, error={"code": "x"}, reason="broke")
    may = JobState.QUEUED in TRANSITIONS[state] and state in ENDED
    with django_capture_on_commit_callbacks(execute=True):
        if may:
            again = services.retry_job(job=job, actor=ALICE)
            assert (again.state, again.attempt, again.error, again.reason) == (JobState.QUEUED, 0, {}, "")
        else:
            with pytest.raises(Conflict):
                services.retry_job(job=job, actor=ALICE)
    assert sent == ([job.pk] if may else [])


def test_reaper_requeues_a_lost_job_once(team, seen_states, sent, django_capture_on_commit_callbacks):
    job = running(team, lease_expires_at=timezone.now() - timedelta(seconds=1))
    with django_capture_on_commit_callbacks(execute=True):
        assert services.reap_lost_jobs() == 1
        assert services.reap_lost_jobs() == 0
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.QUEUED, 1)
    assert "fell silent in attempt 1 of 3" in job.reason
    assert sent == [job.pk]


def test_reaper_ends_a_job_without_attempts_left(team, seen_states, sent):
    job = running(team, attempt=3, lease_expires_at=timezone.now() - timedelta(seconds=1))
    services.reap_lost_jobs()
    job.refresh_from_db()
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "worker_lost")
    assert seen_states == [JobState.ERRORED]


def test_reaper_finishes_a_cancel_whose_worker_died(team, seen_states, sent):
    job = running(team, state=JobState.CANCELLING, lease_expires_at=timezone.now() - timedelta(seconds=1))
    services.reap_lost_jobs()
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED


def test_reaper_leaves_jobs_with_a_live_lease(team, seen_states, sent):
    job = running(team)
    assert services.reap_lost_jobs() == 0
    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_reaper_sends_a_lost_message_again_but_not_at_every_turn(team, sent):
    job = factories.make_job(team, lease_expires_at=timezone.now() - timedelta(seconds=1))
    factories.make_job(team, lease_expires_at=timezone.now() + timedelta(seconds=60))
    services.reap_lost_jobs()
    services.reap_lost_jobs()
    assert sent == [job.pk]


def test_released_job_does_not_lose_an_attempt(team, seen_states, sent):
    job = services.release_job(job_id=running(team).pk, owner="w1")
    assert job is not None
    assert (job.state, job.attempt) == (JobState.QUEUED, 0)


def test_after_every_change_the_last_event_is_the_fresh_row(team, seen_states, sent):
    """A page that applies events shows what a page that asks again would show."""

    def check(job):
        event = Event.objects.filter(subject_id=job.pk).order_by("sequence").last()
        fresh = JobSerializer(Job.objects.select_related("requested_by").get(pk=job.pk)).data
        assert event.payload == dict(fresh)
        assert event.kind == f"job.{event.payload['state']}"

    job = services.enqueue_job(team=team, actor=ALICE, kind="test.noop", title="t", spec={})
    check(job)
    services.claim_job(job_id=job.pk, owner="w1")
    check(job)
    services.release_job(job_id=job.pk, owner="w1")
    check(job)
    services.claim_job(job_id=job.pk, owner="w1")
    services.cancel_job(job=job, actor=ALICE)
    check(job)
    services.finish_job(job_id=job.pk, owner="w1", state=JobState.CANCELLED, reason="gone")
    check(job)
    services.retry_job(job=job, actor=ALICE)
    check(job)
    services.claim_job(job_id=job.pk, owner="w2")
    services.finish_job(job_id=job.pk, owner="w2", state=JobState.ERRORED, error={"code": "x"}, reason="broke")
    check(job)
