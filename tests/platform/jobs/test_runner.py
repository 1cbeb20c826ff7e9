"""`run_job` with real child processes: each way in which a child can end, and what the job says of it."""

import time
from pathlib import Path

import pytest
from django.db import OperationalError
from tursiops.core import store
from tursiops.core.audit import Actor
from tursiops.core.registry import job_kinds
from tursiops.jobs import logs, orphans, run, runner, services
from tursiops.jobs.kinds import JobKind
from tursiops.jobs.models import JobState

from tests.processes import alive

pytestmark = pytest.mark.django_db


def finished(job):
    runner.run_job(job.pk)
    job.refresh_from_db()
    return job


def test_report_metrics_and_log_are_kept(make_act, team, monkeypatch):
    import dummy_plugin

    from tests import factories

    job = factories.make_job(team, kind="dummy.count", spec={"to": 3})
    with job_kinds.register_temporarily("dummy.count", dummy_plugin.CountJob()):
        finished(job)
    assert (job.state, job.report, job.progress) == (JobState.SUCCEEDED, {"counted": 3}, 1.0)
    assert [(m.name, m.step, m.value) for m in job.metrics.order_by("step")] == [("count", n, n) for n in (1, 2, 3)]
    text = store.open_blob(job.log_blob_id).read().decode()
    assert text.count("counted") == 3
    assert not logs.live_path(job).exists()
    page = logs.read(job, 0)
    assert (page.text, page.next, page.ended) == (text, len(text), True)


def test_verdict_is_not_an_error(make_act, team):
    import dummy_plugin

    from tests import factories

    job = factories.make_job(team, kind="dummy.count", spec={"to": 100})
    with job_kinds.register_temporarily("dummy.count", dummy_plugin.CountJob()):
        finished(job)
    assert (job.state, job.error) == (JobState.REJECTED, {})


def test_child_that_explains_itself(make_act):
    job = finished(make_act("explain"))
    assert job.state == JobState.ERRORED
    assert job.error == {"code": "bent_tensor", "message": "Tensor 'lm_head' is bent.", "hint": "Straighten it."}
    assert job.reason == "Tensor 'lm_head' is bent. Straighten it."


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("there is no .gguf file", "There is no .gguf file."),
        ("model.gguf is truncated", "model.gguf is truncated."),
        ("Why so?", "Why so?"),
        (" ", ""),
    ],
)
def test_what_a_child_says_is_read_as_a_sentence(said, read):
    assert runner._sentence(said) == read


def test_killed_child_errors_with_its_last_lines(make_act):
    job = finished(make_act("crash"))
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "crashed")
    assert "killed by signal 9" in job.reason
    assert "loading the fourth shard" in job.reason


def test_traceback_of_a_child_is_in_reason_and_log(make_act):
    job = finished(make_act("raise"))
    assert "tensor 'lm_head' is bent" in job.reason
    assert "Traceback" in logs.read(job, 0).text


def test_noise_on_stdout_goes_to_the_log(make_act):
    job = finished(make_act("babble"))
    assert (job.state, job.report) == (JobState.SUCCEEDED, {"did": "babble"})
    text = "".join(iter_log(job))
    assert "plain text" in text
    assert '"much"' in text


def iter_log(job):
    page = logs.read(job, 0)
    while page.text:
        yield page.text
        page = logs.read(job, page.next)
    assert page.ended


def test_unknown_kind_ends_with_a_reason(team):
    from tests import factories

    job = finished(factories.make_job(team, kind="gone.plugin"))
    assert job.state == JobState.ERRORED
    assert "gone.plugin" in job.reason


def test_fault_of_ours_ends_the_job_not_the_worker(team):
    from tests import factories

    def broken(run):
        return {}["missing"]

    job = factories.make_job(team, kind="test.broken")
    with job_kinds.register_temporarily("test.broken", JobKind("test.broken", "Broken", run=broken)):
        finished(job)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "internal")
    assert "KeyError" in logs.read(job, 0).text


def _while_running(job, interfere):
    """Run `job` with its kind wrapped so that `interfere()` happens once the child has left its mark."""
    kind = job_kinds.get("dummy.act")

    def wrapped(job_run):
        looked = job_run.look_after

        def look_after():
            mark = job.spec.get("mark")
            if mark is None or (Path(mark).exists() and Path(mark).read_text().endswith("\n")):
                interfere()
            looked()

        job_run.look_after = look_after
        return job_run.child(kind.command(), {"spec": job.spec})

    type(job).objects.filter(pk=job.pk).update(kind="test.wrapped")
    with job_kinds.register_temporarily("test.wrapped", JobKind("test.wrapped", "Wrapped", run=wrapped)):
        return finished(job)


def pids(mark: Path) -> list[int]:
    return [int(pid) for pid in mark.read_text().split()]


def test_cancel_kills_the_whole_group(make_act, tmp_path):
    mark = tmp_path / "mark"
    job = make_act("sleep", mark=str(mark), seconds=60)
    started = time.monotonic()
    _while_running(job, lambda: services.cancel_job(job=job, actor=Actor("alice")))
    assert job.state == JobState.CANCELLED
    assert job.reason == "Cancelled by alice."
    assert not any(alive(pid) for pid in pids(mark))
    assert time.monotonic() - started < 15
    assert not (orphans.folder() / f"{job.pk}.json").exists()


def test_child_that_ignores_sigterm_is_killed(make_act, monkeypatch):
    monkeypatch.setattr("tursiops.jobs.child.TERM_GRACE_S", 0.3)
    monkeypatch.setattr("tursiops.jobs.child.Child.stop.__defaults__", (0.3,))
    job = make_act("ignore-term")
    _while_running(job, lambda: services.cancel_job(job=job, actor=Actor("alice")))
    assert job.state == JobState.CANCELLED


def test_lost_lease_stops_the_work_and_writes_nothing(make_act, tmp_path):
    mark = tmp_path / "mark"
    job = make_act("sleep", mark=str(mark), seconds=60)
    _while_running(job, lambda: type(job).objects.filter(pk=job.pk).update(lease_owner="another"))
    assert (job.state, job.lease_owner, job.report) == (JobState.RUNNING, "another", {})
    assert not any(alive(pid) for pid in pids(mark))


def test_stopping_worker_gives_the_job_back(make_act, tmp_path):
    mark = tmp_path / "mark"
    job = make_act("sleep", mark=str(mark), seconds=60)
    try:
        _while_running(job, run.stopping.set)
    finally:
        run.stopping.clear()
    assert (job.state, job.attempt) == (JobState.QUEUED, 0)
    assert not any(alive(pid) for pid in pids(mark))


def test_progress_is_written_at_most_twice_a_second(make_act, tmp_path, monkeypatch):
    writes: list[float] = []
    monkeypatch.setattr(services, "record_progress", lambda **fields: writes.append(time.monotonic()))
    finished(make_act("sleep", mark=str(tmp_path / "mark"), seconds=1.5))
    assert 2 <= len(writes) <= 5


def test_retry_goes_on_in_the_same_log(make_act):
    job = finished(make_act("explain"))
    first = logs.read(job, 0)
    services.retry_job(job=job, actor=Actor("alice"))
    finished(job)
    assert logs.read(job, 0).text.startswith(first.text)
    assert "attempt 1 of 3" in logs.read(job, first.next).text


@pytest.mark.django_db(transaction=True)
def test_end_is_written_when_the_database_comes_back(make_act, monkeypatch):
    failures = [OperationalError("the database system is starting up")] * 2
    real = services.finish_job

    def finish(**fields):
        if failures:
            raise failures.pop()
        return real(**fields)

    monkeypatch.setattr(services, "finish_job", finish)
    monkeypatch.setattr(runner.time, "sleep", lambda seconds: None)
    job = finished(make_act("explain"))
    assert job.error["code"] == "bent_tensor"


@pytest.mark.django_db(transaction=True)
def test_database_away_while_a_child_runs_does_not_end_it(make_act, tmp_path, monkeypatch):
    failures = [OperationalError("terminating connection")] * 3
    real = services.record_progress

    def record(**fields):
        if failures:
            raise failures.pop()
        real(**fields)

    monkeypatch.setattr(services, "record_progress", record)
    monkeypatch.setattr(run, "PROGRESS_S", 0.1)
    job = finished(make_act("sleep", mark=str(tmp_path / "mark"), seconds=0.8))
    assert job.state == JobState.SUCCEEDED
    assert failures == []


def test_log_of_an_earlier_attempt_that_is_on_another_node(make_act):
    from tests import factories

    job = make_act("explain")
    type(job).objects.filter(pk=job.pk).update(log_blob=factories.make_blob())
    finished(job)
    assert job.error["code"] == "bent_tensor"
    assert "the log of the attempts before is not here" in logs.read(job, 0).text
