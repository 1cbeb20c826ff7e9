"""Runs: the life of one, one at a time on a target, what is kept of one that breaks off, and what has become worse."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connections
from django.utils import timezone
from tursiops.accounts.models import ApiKey
from tursiops.core.models import Event
from tursiops.deployments import services as deployments
from tursiops.deployments.models import Deployment
from tursiops.evaluations import execute, results, runs
from tursiops.evaluations.models import Baseline, Run, RunState
from tursiops.evaluations.targets import Target
from tursiops.jobs import runner
from tursiops.jobs import services as jobs
from tursiops.jobs.models import Job, JobMetric, JobState

from engines.protocol import ChildError
from evaluation.quality.results import Figure, GateResult, QualityResult, TaskResult
from evaluation.schema import ObjectiveResult, ResultDoc
from tests import factories
from tests.platform.api_bases import assert_error_shape
from tests.platform.evaluations.conftest import document, event_kinds, worked

pytestmark = pytest.mark.django_db
RUNS = "/api/v1/evaluations/runs"


def test_a_run_from_the_door_to_its_files(api, member, suite, serving, children):
    answer = api(member).post(RUNS, {"suite": str(suite.pk), "deployment": str(serving.pk), "seed": 7})
    assert answer.status_code == 202, answer.content
    assert (answer.json()["state"], answer.json()["parts"]) == ("queued", ["load"])
    worked(Run.objects.get())
    shown = api(member).get(f"{RUNS}/{answer.json()['id']}").json()
    assert (shown["state"], shown["verdict"], shown["revision"]) == ("completed", "pass", 1)
    assert shown["version"] == str(serving.current.version_id)
    assert shown["figures"]["e2el.p95"]["value"] == 800.0
    assert shown["results"]["load"]["levels"][0]["rate"] == 2.0
    assert [file["name"] for file in shown["files"]] == ["load/report.html", "load/result.json"]
    file = api(member).get(f"{RUNS}/{shown['id']}/files/load/report.html")
    assert b"".join(file.streaming_content) == b"<html>"
    assert (file["Content-Security-Policy"], "attachment" in file["Content-Disposition"]) == ("sandbox", True)
    assert_error_shape(api(member).get(f"{RUNS}/{shown['id']}/files/../../etc/passwd"), 404)
    [spec] = children.seen
    assert (spec["endpoint"]["model"], spec["seed"]) == (serving.name, 7)
    assert not results.folder(Run.objects.get()).exists()


def test_its_key_opens_one_model_for_its_time_and_is_closed_at_its_end(started, serving, children):
    run = worked(started())
    key = ApiKey.objects.get()
    assert (key.allowed_models, run.key_id) == ([serving.name], key.pk)
    assert key.revoked_at is not None
    assert timedelta(minutes=20) < key.expires_at - key.created_at < timedelta(minutes=40)
    assert run.job.progress_text == "ts-"  # the child had it, in its environment
    assert key.sha256 not in str(children.seen)
    assert "ts-" not in str(children.seen)


def test_points_for_charts_are_read_once_and_then_followed(api, member, started, children):
    run = worked(started())
    page = api(member).get(f"{RUNS}/{run.pk}/points").json()
    assert [(it["name"], it["step"], it["value"]) for it in page["points"]] == [("e2el_ms", 3, 1.5)]
    assert api(member).get(f"{RUNS}/{run.pk}/points?after={page['next']}").json() == {
        "points": [],
        "next": page["next"],
    }


def test_a_second_run_on_the_same_target_waits_and_says_for_whom(
    started, children, team, django_capture_on_commit_callbacks
):
    first, second, other = started(), started(), started(deployment=serving_too(team))
    assert (first.state, second.state, other.state) == ("queued", "waiting", "queued")
    assert second.job is None
    assert f"waits for the run of {first.suite.name}" in second.reason
    with django_capture_on_commit_callbacks(execute=True):
        worked(first)
    second.refresh_from_db()
    assert (second.state, second.reason) == ("queued", "")
    assert worked(second).state == RunState.COMPLETED


def serving_too(team) -> Deployment:
    from tursiops.deployments.models import InstanceState

    deployment = factories.make_deployment(team)
    factories.make_instance(deployment, state=InstanceState.READY, node=factories.make_node())
    return deployment


def test_a_line_that_nobody_moved_on_is_moved_on_by_the_controller(started, children):
    first, second = started(), started()
    worked(first)  # its commit's callback is lost with its worker
    assert Run.objects.get(pk=second.pk).state == RunState.WAITING
    assert runs.start_waiting() == 1
    assert runs.start_waiting() == 0
    assert Run.objects.get(pk=second.pk).state == RunState.QUEUED


def test_a_run_whose_target_is_gone_before_its_turn_says_so(started, children, serving):
    started()
    second = started()
    Run.objects.filter(pk=second.pk).update(deployment=None)
    runs.start_waiting()
    second.refresh_from_db()
    assert (second.state, second.reason) == ("errored", f"{serving.name} was deleted before its turn came.")


def test_a_run_that_is_retried_yields_to_the_one_that_stood_in_line(api, member, started, children):
    children.act = "fail"
    first = worked(started())
    second = started()
    assert second.state == RunState.QUEUED
    error = assert_error_shape(api(member).post(f"/api/v1/jobs/{first.job_id}/retry"), 409)
    assert (error["code"], Run.objects.get(pk=first.pk).state) == ("target_busy", "incomplete")
    Run.objects.filter(pk=first.pk).update(state="queued")  # both at once all the same
    children.act = "end"
    assert worked(second).state == RunState.COMPLETED
    Run.objects.filter(pk=first.pk).update(state="incomplete")
    assert api(member).post(f"/api/v1/jobs/{first.job_id}/retry").status_code == 200


def test_of_two_that_were_queued_at_once_the_earlier_gives_way(started, children):
    first = started()
    second = started()
    Run.objects.filter(pk=second.pk).update(state="queued")
    assert worked(first).job.error["code"] == "target_busy"


@pytest.mark.parametrize("by_hand", [True, False])
def test_runs_of_two_versions_of_a_suite_are_not_compared(started, children, suite, by_hand):
    first = worked(started())
    Baseline.objects.update(by_hand=by_hand)
    factories.make_suite_version(suite)
    children.document = document(p95=1600.0)  # of another question
    second = worked(started())
    assert (second.regressions, second.baseline) == ([], None)
    assert Baseline.objects.get().run_id == (first.pk if by_hand else second.pk)
    told = "Compared with nothing: the baseline is of version 1 of the suite, this run of version 2."
    assert second.reason.startswith(told) is by_hand


def test_a_look_that_the_database_does_not_answer_ends_nothing(started, children, serving, monkeypatch):
    run, closed = started(), []
    monkeypatch.setattr(execute, "connection", SimpleNamespace(close=lambda: closed.append(1)))
    watch = execute.TargetWatch(run, Target(serving))
    monkeypatch.setattr(execute, "LOOK_AT_TARGET_S", 0.0)
    with monkeypatch.context() as away:
        away.setattr(execute, "Deployment", SimpleNamespace(objects=SimpleNamespace(filter=_no_database)))
        watch()
    assert closed == [1]
    monkeypatch.setattr(execute.specs, "time_limit_s", lambda spec: -1.0)
    with pytest.raises(ChildError) as error:
        execute.TargetWatch(run, Target(serving))()
    assert (error.value.code, "steady.max_s" in error.value.hint) == ("too_long", True)


def _no_database(**where):
    raise OperationalError("the connection was closed")


def test_waiting_runs_are_cancelled_at_once(api, member, started, children):
    started()
    waiting = started()
    shown = api(member).post(f"{RUNS}/{waiting.pk}/cancel").json()
    assert (shown["state"], shown["reason"]) == ("cancelled", f"Cancelled by {member.username}.")
    assert_error_shape(api(member).post(f"{RUNS}/{waiting.pk}/cancel"), 409)


def test_a_child_that_fails_leaves_what_it_had_measured(started, children):
    children.act, children.document = "fail", document(state="incomplete")
    run = worked(started())
    assert (run.state, run.verdict) == ("incomplete", "")
    assert run.reason == "Nobody answers. Look."
    assert run.figures["e2el.p95"]["value"] == 800.0
    assert ApiKey.objects.get().revoked_at is not None


def test_a_result_that_is_not_whole_is_no_verdict(started, children, suite):
    children.document = document(state="incomplete")
    run = worked(started())
    assert (run.state, run.verdict, Baseline.objects.count()) == ("incomplete", "", 0)
    assert "before it had measured all" in run.reason


def test_a_deployment_that_does_not_serve_is_told_before_anything_runs(api, member, suite, team, children, started):
    idle = factories.make_deployment(team)
    run = worked(started(deployment=idle))
    assert (run.state, run.job.error["code"]) == ("errored", "target_not_ready")
    stopped = factories.make_deployment(team, desired="stopped")
    body = {"suite": str(suite.pk), "deployment": str(stopped.pk)}
    assert assert_error_shape(api(member).post(RUNS, body), 409)["code"] == "target_not_running"


def test_a_run_of_someone_who_has_left_says_so(started, children, member):
    run = started()
    member.is_active = False
    member.save()
    run = worked(run)
    assert (run.state, run.job.error["code"]) == ("errored", "no_owner")
    assert not ApiKey.objects.exists()


def test_a_failed_verdict_rejects_the_job_and_is_no_error(started, children):
    children.document = document(verdict="fail")
    run = worked(started())
    assert (run.state, run.verdict, run.job.state) == ("completed", "fail", JobState.REJECTED)


def test_the_last_passed_run_is_the_baseline_and_a_worse_one_is_marked(started, children, team, serving):
    first = worked(started())
    baseline = Baseline.objects.get()
    assert (baseline.run_id, baseline.by_hand) == (first.pk, False)
    children.document = document(p95=820.0)  # 2.5 %: passes, and takes its place
    second = worked(started())
    assert (second.baseline_id, second.regressions) == (first.pk, [])
    children.document = document(p95=900.0)
    third = worked(started())
    [item] = third.regressions
    assert (item["figure"], item["baseline"], item["value"]) == ("e2el.p95", 820.0, 900.0)
    assert Baseline.objects.get().run_id == second.pk  # what is worse becomes no baseline
    event = Event.objects.get(team=team, kind="evaluation.regressed")
    assert event.text == f"{third} has become worse: e2el.p95 is 900 ms, +9.8% from 820 ms"
    assert event.payload["regressions"] == third.regressions


def test_quality_that_nothing_was_asked_of_is_compared_all_the_same(started, children):
    """A suite as the console makes it: measured each night, without a limit."""

    def measured(accuracy: float, gates: list[GateResult], verdict: str = "undetermined") -> ResultDoc:
        figure = Figure(value=accuracy, low=accuracy - 0.02, high=accuracy + 0.02)
        task = TaskResult(name="ours", kind="rules", primary="accuracy", figures={"accuracy": figure})
        return ResultDoc(
            id="1", kind="quality", state="complete", verdict=verdict, quality=QualityResult(tasks=[task], gates=gates)
        )

    children.document = measured(0.8, [])
    first = worked(started())
    told = "Nothing was asked of its quality: the suite has no gate for it."
    assert (first.state, first.verdict, first.reason) == ("completed", "undetermined", told)
    assert Baseline.objects.get().run_id == first.pk
    children.document = measured(0.7, [])
    second = worked(started())
    assert [item["figure"] for item in second.regressions] == ["ours.accuracy"]
    assert Baseline.objects.get().run_id == first.pk
    gate = GateResult(name="g", metric="ours.accuracy", rule="ours >= 0.8", decision="undetermined", blocks=True)
    children.document = measured(0.81, [gate])
    assert worked(started()).verdict == "undetermined"
    assert Baseline.objects.get().run_id == first.pk  # a gate that was not shown to hold is no pass


def test_an_objective_that_was_missed_is_told_with_its_share(started, children):
    children.document = document(verdict="fail")
    missed = ObjectiveResult(
        metric="e2el", limit_ms=500, quantile=0.95, start="intended", k=120, n=1000, decision="fail"
    )
    children.document.levels[0].objectives = [missed]
    assert worked(started()).reason == "e2el at most 500 ms: missed by 120 of 1000 requests, at most 5 % allowed."


def test_a_baseline_set_by_hand_stays(api, member, started, children):
    first, second = worked(started()), worked(started())
    body = {"run": str(first.pk)}
    answer = api(member).post("/api/v1/evaluations/baselines", body)
    assert (answer.status_code, answer.json()["by_hand"]) == (201, True)
    worked(started())
    assert Baseline.objects.get().run_id == first.pk
    error = assert_error_shape(api(member).delete(f"{RUNS}/{first.pk}"), 409)
    assert "baseline" in error["message"]
    assert api(member).delete(f"{RUNS}/{second.pk}").status_code == 204
    assert api(member).delete(f"/api/v1/evaluations/baselines/{answer.json()['id']}").status_code == 204
    assert api(member).delete(f"{RUNS}/{first.pk}").status_code == 204


def test_the_same_key_is_the_same_run(api, member, suite, serving, children):
    body = {"suite": str(suite.pk), "deployment": str(serving.pk)}
    headers = {"Idempotency-Key": "once"}
    first, again = (api(member).post(RUNS, body, headers=headers).json()["id"] for _ in range(2))
    assert first == again


def test_a_target_is_exactly_one(api, member, suite, serving, team):
    both = {"suite": str(suite.pk), "deployment": str(serving.pk), "endpoint": str(factories.make_endpoint(team).pk)}
    for body in (both, {"suite": str(suite.pk)}):
        assert set(assert_error_shape(api(member).post(RUNS, body), 400)["fields"]) == {"deployment"}


def test_rows_of_another_team_can_not_be_named(api, outsider, suite, serving):
    body = {"suite": str(suite.pk), "deployment": str(serving.pk)}
    assert set(assert_error_shape(api(outsider).post(RUNS, body), 400)["fields"]) == {"suite", "deployment"}


class TestWhileItRuns:
    """With a worker's thread of its own, so that others change rows while the child is at work."""

    pytestmark = pytest.mark.django_db(transaction=True)

    def run_with(self, run: Run, meanwhile) -> Run:
        thread = threading.Thread(target=self._work, args=[run])
        thread.start()
        try:
            end = time.monotonic() + 30
            while not JobMetric.objects.filter(job=run.job).exists() and time.monotonic() < end:
                time.sleep(0.05)
            meanwhile()
        finally:
            thread.join(30)
        assert not thread.is_alive()
        return Run.objects.get(pk=run.pk)

    @staticmethod
    def _work(run: Run) -> None:
        try:
            runner.run_job(run.job_id)
        finally:
            connections.close_all()

    def test_a_cancelled_run_keeps_what_it_measured(self, started, children, member):
        children.act, children.document = "hang", document(state="running")
        run = started()
        ended = self.run_with(run, lambda: runs.cancel_run(run=run, actor=runs.actor_of(member)))
        assert (ended.state, ended.reason) == ("cancelled", f"Cancelled by {member.username}.")
        assert ended.figures["e2el.p95"]["value"] == 800.0
        assert ApiKey.objects.get().revoked_at is not None

    @pytest.mark.parametrize("what", ["deleted", "changed"])
    def test_a_deployment_that_goes_away_ends_its_run(self, started, children, member, serving, what, monkeypatch):
        monkeypatch.setattr(execute, "LOOK_AT_TARGET_S", 0.1)
        children.act, children.document = "hang", document(state="running")

        def change() -> None:
            if what == "deleted":
                deployments.deployment_delete(deployment=serving, actor=runs.actor_of(member))
            else:
                serving.current = factories.make_revision(serving)
                serving.save()

        ended = self.run_with(started(), change)
        assert ended.state == RunState.INCOMPLETE
        assert ended.job.error["code"] == {"deleted": "target_gone", "changed": "target_changed"}[what]
        assert f"{serving.name} " in ended.reason
        assert ended.figures["e2el.p95"]["value"] == 800.0

    def test_a_lost_workers_run_goes_on_in_its_folder_and_its_key_is_closed(self, started, children):
        children.act, children.document = "hang", document(state="running")
        run = started()
        past = timezone.now() - timedelta(seconds=1)

        def lose() -> None:
            Job.objects.filter(pk=run.job_id).update(lease_expires_at=past, lease_owner="gone")
            jobs.reap_lost_jobs()

        lost = self.run_with(run, lose)
        assert (lost.state, "fell silent" in lost.reason) == ("queued", True)
        assert ApiKey.objects.get().revoked_at is not None
        children.act, children.document = "end", document()
        again = worked(lost)
        assert (again.state, again.verdict, children.resumed) == ("completed", "pass", 1)

    def test_a_run_that_is_lost_for_good_is_incomplete(self, started, children, team):
        children.act, children.document = "hang", document(state="running")
        run = started()
        Job.objects.filter(pk=run.job_id).update(attempt=2)

        def lose() -> None:
            past = timezone.now() - timedelta(seconds=1)
            Job.objects.filter(pk=run.job_id).update(lease_expires_at=past, lease_owner="gone")
            jobs.reap_lost_jobs()

        lost = self.run_with(run, lose)
        assert (lost.state, lost.job.error["code"]) == ("incomplete", "worker_lost")
        assert lost.figures["e2el.p95"]["value"] == 800.0
        assert "evaluation.incomplete" in event_kinds(team)
