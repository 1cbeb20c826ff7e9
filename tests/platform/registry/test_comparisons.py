"""Comparisons of two versions: real children, who may start one, and what is refused at the door."""

from __future__ import annotations

import pytest
from tursiops.jobs import logs
from tursiops.jobs.models import Job, JobState
from tursiops.registry.models import Version, VersionState

from tests import factories, tiny_models
from tests.platform.api_bases import assert_error_shape
from tests.platform.registry.conftest import rerun

pytestmark = pytest.mark.django_db


def url(version: Version) -> str:
    return f"/api/v1/versions/{version.pk}/compare"


@pytest.fixture
def pair(imported, tmp_path) -> list[Version]:
    """Two ready versions of one model, with other weights."""
    files = [tiny_models.write_gguf(tmp_path / f"{seed}.gguf", seed=seed) for seed in (1, 2)]
    jobs = [imported("path", str(file), name="tiny") for file in files]
    return [Version.objects.get(pk=job.subject_id) for job in jobs]


@pytest.mark.slow
def test_a_comparison_is_a_job_whose_report_has_a_row_per_layer(api, member, pair):
    reference, other = pair
    answer = api(member).post(url(other), {"reference": str(reference.pk), "dtype": "float32", "text": "ab " * 30})
    assert answer.status_code == 202, answer.content
    body = answer.json()
    assert (body["kind"], body["title"]) == ("registry.compare", "Compare tiny v2 with tiny v1")
    assert (body["subject_type"], body["subject_id"]) == ("model", str(other.model_id))
    job = rerun(Job.objects.get(pk=body["id"]))
    assert job.state == JobState.SUCCEEDED, (job.reason, logs.read(job, 0).text)
    report = job.report
    assert report["other"] == {"version": str(other.pk), "label": "tiny v2", "dtype": "float32"}
    assert report["reference"]["label"] == "tiny v1"
    assert report["kl"] > 0
    assert report["layers"][0]["relative_error"] > 0
    share = f"{report['same_top']:.1%}"
    assert job.reason == f"KL {report['kl']:.3g} nats per token, the same likeliest token in {share} of places."
    listed = api(member).get(f"/api/v1/jobs?kind=registry.compare&subject_id={other.model_id}").json()["results"]
    assert [row["id"] for row in listed] == [str(job.pk)]
    assert api(member).get(f"/api/v1/versions/{other.pk}").json()["job"] != str(job.pk)  # which made the version


def test_a_version_deleted_meanwhile_is_told_by_name(api, team, member):
    reference, other = factories.make_version(team=team), factories.make_version(team=team)
    body = {"reference": str(reference.pk), "dtype": "float32"}
    job = Job.objects.get(pk=api(member).post(url(other), body).json()["id"])
    label = str(reference)
    reference.delete()
    job = rerun(job)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "version_gone")
    assert f"The version {label} was deleted." in job.reason


def test_members_compare_versions_of_their_own_team(api, team, viewer, member, outsider, other_team):
    reference, other = factories.make_version(team=team), factories.make_version(team=team)
    body = {"reference": str(reference.pk)}
    assert_error_shape(api(viewer).post(url(other), body), 403)
    assert_error_shape(api(outsider).post(url(other), body), 404)
    foreign = factories.make_version(team=other_team)
    error = assert_error_shape(api(member).post(url(other), {"reference": str(foreign.pk)}), 400)
    assert set(error["fields"]) == {"reference"}
    first, again = (
        api(member).post(url(other), body, headers={"Idempotency-Key": "once"}).json()["id"] for _ in range(2)
    )
    assert first == again


@pytest.mark.parametrize(
    ("fields", "body", "field", "says"),
    [
        ({}, {"dtype": "float8"}, "dtype", "not one of auto"),
        ({}, {"device": "tpu"}, "device", "tpu"),
        ({}, {"dtpye": "int8"}, "dtpye", "Did you mean dtype?"),
        ({}, {"text": "a" * 100_001}, "text", "100000"),
        ({"state": VersionState.IMPORTING}, {}, "reference", "is importing"),
        ({"shape": {**factories.SMOLLM2_SHAPE, "layers": 24}}, {}, "reference", "has layers 24 and"),
        ({"shape": {**factories.SMOLLM2_SHAPE, "task": "embed"}}, {}, "reference", "does not generate text"),
    ],
)
def test_what_cannot_come_to_an_end_is_refused_at_the_door(api, team, member, fields, body, field, says):
    reference, other = factories.make_version(team=team, **fields), factories.make_version(team=team)
    error = assert_error_shape(api(member).post(url(other), {"reference": str(reference.pk), **body}), 400)
    assert says in error["fields"][field][0]
    assert not Job.objects.exists()


def test_a_version_is_compared_with_itself_in_another_dtype_only(api, team, member):
    version = factories.make_version(team=team)
    body = {"reference": str(version.pk), "dtype": "float32"}
    error = assert_error_shape(api(member).post(url(version), body), 400)
    assert "choose another" in error["message"]
    assert api(member).post(url(version), {**body, "dtype": "int8"}).status_code == 202
