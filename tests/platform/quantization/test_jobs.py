"""Jobs with a real child: made, judged, killed, cancelled, refused. What is half done is never in the registry."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from django.utils import timezone
from tursiops.core import moves, store
from tursiops.core import registry as registry_of_engines
from tursiops.core.audit import Actor
from tursiops.core.errors import Conflict
from tursiops.core.filestore import StoreError
from tursiops.core.models import Event
from tursiops.deployments.models import Deployment
from tursiops.deployments.services import deployment_create
from tursiops.jobs import logs, run
from tursiops.jobs import services as jobs
from tursiops.jobs.models import Job, JobState
from tursiops.quantization.models import Quantization
from tursiops.registry import imports
from tursiops.registry import services as registry
from tursiops.registry.models import LineageEdge, LineageKind, Version, VersionState

from engines.protocol import ChildError
from tests import factories
from tests.platform.quantization.conftest import ALICE, cancel_as_soon_as, ran

pytestmark = pytest.mark.django_db


def work_of(job: Job):
    return store.local().root / "incoming" / str(job.subject_id)


def resumed_at(version: Version) -> int:
    digest = version.files.get(name="copied.json").blob_id
    with store.open_blob(digest) as file:
        return json.load(file)["resumed_at"]


def test_a_version_with_lineage_figures_and_a_verdict(base, started, measured):
    row = started()
    assert row.version.state == VersionState.IMPORTING
    job = ran(row)
    assert job.state == JobState.SUCCEEDED, (job.reason, logs.read(job, 0).text)
    version = Version.objects.get(pk=row.version_id)
    assert (version.model, version.number, version.state) == (base.model, base.number + 1, VersionState.READY)
    assert (version.format, version.license, version.architecture) == ("safetensors", "mit", "llama")
    assert set(base.files.values_list("name", flat=True)) < set(version.files.values_list("name", flat=True))
    assert all(store.verify(file.blob_id) for file in version.files.all())
    edge = LineageEdge.objects.get()
    assert (edge.kind, edge.parent, edge.child, edge.job) == (LineageKind.QUANTIZED_FROM, base, version, job)
    assert edge.changes["scheme"]["after"] == row.scheme_label
    assert edge.changes["memory"] == {"before": 1000, "after": 500, "unit": "bytes"}
    assert edge.changes["decode"] == {"before": 10.0, "after": 15.0, "unit": "tokens/s"}
    assert edge.changes["size"]["before"] == base.size_bytes
    assert edge.changes["verdict"]["after"] == row.verdict == "passed"
    assert row.rules == [
        {"metric": "perplexity_ratio", "value": 1.005, "limit": 1.01, "better": "lower", "passed": True}
    ]
    assert not work_of(job).exists()
    kinds = set(Event.objects.values_list("kind", flat=True))
    assert {"quantization.started", "quantization.judged", "version.ready"} <= kinds


def test_a_gate_that_is_not_kept_fails_by_verdict_and_stops_moves_to_the_version(base, started, measured, team):
    row = started(gate={"perplexity_ratio": 1.001, "same_top": 0.9})
    job = ran(row)
    assert (job.state, row.verdict) == (JobState.REJECTED, "failed")
    version = Version.objects.get(pk=row.version_id)
    assert version.state == VersionState.READY
    assert "1.005 × the base's; at most 1.001 × is asked" in version.reason
    assert [rule["passed"] for rule in row.rules] == [False, True]
    assert LineageEdge.objects.get().changes["verdict"]["after"] == "failed"
    with pytest.raises(Conflict) as stopped:
        deployment_create(team=team, actor=ALICE, name="new", replicas={"unified": 1}, force=True, version=version)
    assert stopped.value.code == "gate_not_met"
    assert not Deployment.objects.exists()
    admin = Actor("ada", user=factories.make_user(team, "admin"))
    asked = {"name": "new", "replicas": {"unified": 1}, "force": True, "override": "a trial", "version": version}
    assert deployment_create(team=team, actor=admin, **asked).current.version == version
    assert Event.objects.filter(kind="move.overridden").exists()
    with pytest.raises(Conflict) as refused:
        registry.set_alias(model=base.model, actor=ALICE, name="champion", version_id=version.pk)
    assert refused.value.code == "gate_not_met"
    assert moves.refusals(registry.alias_move(base.model, "champion", base)) == []
    registry.delete_version(version=base, actor=ALICE)
    (still,) = moves.refusals(registry.alias_move(version.model, "champion", version))
    assert "failed the gate of its quantization" in still.message


def test_a_rule_of_the_optimizer_s_own_rejects_whatever_the_gate_asks(started, measured):
    row = started("reject", gate={})
    job = ran(row)
    assert (job.state, row.verdict, job.error) == (JobState.REJECTED, "failed", {})
    assert [(rule["metric"], rule["passed"]) for rule in row.rules] == [("gap_recovery", False)]
    assert "Training won back 21.0% of what rounding lost; at least 30% is asked." in job.reason
    assert moves.refusals(registry.alias_move(row.base.model, "champion", row.version)) != []


@pytest.fixture
def crashes_once(monkeypatch) -> None:
    """The engine's first measurement ends as a child without memory does; later ones tell the same of every version."""
    measure = registry_of_engines.engine("native").measure_command()
    told = {"perplexity": 20.0, "tokens": 9, "weights": 1, "process": 2, "prefill": 3.0, "decode": 4.0}
    told |= {"device": "cpu", "dtype": "float32", "bos": False, "agreement": None}
    real, failures = run.JobRun.child, iter([ChildError("crashed", "killed by signal 9")])

    def child(self, command, spec, **options):
        if command != measure:
            return real(self, command, spec, **options)
        if error := next(failures, None):
            raise error
        return SimpleNamespace(data=told)

    monkeypatch.setattr(run.JobRun, "child", child)


def test_a_measurement_that_fails_errors_the_job_and_a_retry_only_measures(started, crashes_once):
    row = started()
    job = ran(row)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "crashed")
    assert Version.objects.get(pk=row.version_id).state == VersionState.FAILED
    jobs.retry_job(job=job, actor=ALICE)
    job = ran(row)
    assert (job.state, row.verdict) == (JobState.SUCCEEDED, "passed"), job.reason
    assert "the files of an earlier attempt are whole" in logs.read(job, 0).text


def test_a_measurement_that_fails_where_nothing_is_asked_leaves_the_version(started, crashes_once):
    row = started(gate={"fallbacks": 0})
    assert ran(row).state == JobState.SUCCEEDED
    assert row.figures["not_measured"] == "killed by signal 9"


def test_a_limit_on_what_is_no_number_is_no_pass(started, measured):
    measured["after"] = {"perplexity": None}
    row = started()
    job = ran(row)
    assert (job.state, row.verdict, job.error) == (JobState.REJECTED, "error", {})
    assert "perplexity_ratio could not be measured" in job.reason


def test_without_a_gate_nothing_is_judged_but_measured(started, measured):
    row = started(gate={})
    assert ran(row).state == JobState.SUCCEEDED
    assert (row.verdict, row.rules, row.figures["kl"]) == ("passed", [], 0.01)


def test_a_killed_child_goes_on_at_its_last_finished_layer(started, measured):
    row = started("crash")
    job = ran(row)
    assert job.state == JobState.SUCCEEDED, job.reason
    assert resumed_at(row.version) == 1
    assert "killed by signal 9" in logs.read(job, 0).text


def test_a_lost_worker_s_next_attempt_goes_on_too(started, measured):
    row = started()
    assert jobs.claim_job(job_id=row.job_id, owner="gone") is not None
    work = work_of(row.job) / "work"
    work.mkdir(parents=True)
    (work / "layer-0").write_text("done")
    Job.objects.filter(pk=row.job_id).update(lease_expires_at=timezone.now() - jobs.LEASE)
    assert jobs.reap_lost_jobs() == 1
    job = ran(row)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2), job.reason
    assert resumed_at(row.version) == 1


def test_a_child_that_gets_no_further_is_not_started_for_ever(started, measured, monkeypatch):
    monkeypatch.setattr("tursiops.quantization.execute._files_in", lambda folder: 0)
    row = started("crash")
    job = ran(row)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "crashed")
    assert Version.objects.get(pk=row.version_id).state == VersionState.FAILED
    assert work_of(job).exists()  # a retry goes on from there
    jobs.retry_job(job=job, actor=ALICE)
    assert ran(row).state == JobState.SUCCEEDED
    assert resumed_at(row.version) == 1


def test_finished_files_are_not_made_again(started, measured, monkeypatch):
    real, full = imports.taken_in, StoreError("disk_full", "no space left", "Free some space.")

    def fails(*args):
        raise full

    monkeypatch.setattr(imports, "taken_in", fails)
    row = started()
    job = ran(row)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "disk_full")
    assert Version.objects.get(pk=row.version_id).state == VersionState.FAILED
    assert not row.version.files.exists()
    assert not LineageEdge.objects.exists()
    monkeypatch.setattr(imports, "taken_in", real)
    jobs.retry_job(job=job, actor=ALICE)
    job = ran(row)
    assert job.state == JobState.SUCCEEDED, job.reason
    assert "the files of an earlier attempt are whole" in logs.read(job, 0).text


def test_what_the_child_refuses_ends_with_the_layer(started, measured):
    row = started("refuse")
    job = ran(row)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "bad_weights")
    version = Version.objects.get(pk=row.version_id)
    assert (version.state, version.reason) == (VersionState.FAILED, job.reason)
    assert "down_proj" in version.reason


def test_a_cancel_leaves_no_version_and_nothing_on_the_disk(base, started, measured, monkeypatch):
    row = started("wait")
    pk = row.version_id
    cancel_as_soon_as(monkeypatch, lambda job: (work_of(job) / "work" / "layer-0").exists())
    job = ran(row)
    assert (job.state, job.reason) == (JobState.CANCELLED, "Cancelled by alice.")
    assert not Version.objects.filter(pk=pk).exists()
    assert row.version_id is None
    assert not work_of(job).exists()
    assert Event.objects.filter(kind="version.deleted", subject_id=pk).exists()


def test_a_cancelled_job_that_is_taken_up_again_gets_its_version_anew(started, measured):
    row = started()
    jobs.cancel_job(job=row.job, actor=ALICE)
    row.refresh_from_db()
    assert row.version_id is None
    jobs.retry_job(job=row.job, actor=ALICE)
    job = ran(row)
    assert job.state == JobState.SUCCEEDED, job.reason
    assert (row.version_id, row.version.state) == (job.subject_id, VersionState.READY)


def test_the_base_stays_while_it_is_quantized(base, started):
    row = started()
    with pytest.raises(Conflict, match="Quantize tiny v1"):
        registry.delete_version(version=base, actor=ALICE)
    assert Quantization.objects.filter(pk=row.pk).exists()


def test_one_key_starts_once(base, started):
    first, again = started(key="k"), started(key="k")
    assert first.pk == again.pk
    assert (Job.objects.count(), base.model.versions.count()) == (1, 2)
