"""REST of models, versions, aliases and lineage."""

from __future__ import annotations

import uuid

import pytest
from tursiops.core.models import Event
from tursiops.jobs.models import Job, JobState
from tursiops.registry import services, sources
from tursiops.registry.models import Alias, LineageEdge, LineageKind, Model, Version, VersionState

from tests import factories, tiny_models
from tests.platform.api_bases import DeleteBase, GetBase, ListBase, PatchBase, assert_error_shape

URL = "/api/v1/models"
VERSION_FIELDS = {
    "id", "model", "model_name", "number", "state", "reason", "source_kind", "source_ref", "source_revision", "format",
    "architecture", "dtype", "quantization", "license", "size_bytes", "shape", "tokenizer", "has_chat_template",
    "files", "job", "created_at",
}  # fmt: skip


def make_whole_model(team) -> Model:
    version = factories.make_version(team=team)
    factories.make_version(version.model)
    factories.make_alias(version)
    return version.model


class TestModels(ListBase, GetBase, PatchBase, DeleteBase):
    url = URL
    make = staticmethod(make_whole_model)
    patch_body = {"description": "for the help desk"}
    list_queries = 11  # session, user, team, role; count, models; versions, their files and blobs; aliases


class TestVersions(GetBase, DeleteBase):
    url = "/api/v1/versions"

    @staticmethod
    def make(team):
        return factories.make_version(team=team)


@pytest.fixture
def client(api, member):
    return api(member)


@pytest.mark.django_db
def test_rows_have_the_fields_of_the_contract(client, team):
    version = factories.make_version(team=team, chat_template="{{ x }}")
    job = factories.make_job(team, subject_type="version", subject_id=version.pk)
    factories.make_alias(version)
    (row,) = client.get(URL).json()["results"]
    assert set(row) == {"id", "name", "description", "task", "created_at", "versions_count", "aliases", "latest"}
    assert row["aliases"] == [{"name": "champion", "version": str(version.pk), "number": 1}]
    assert set(row["latest"]) == VERSION_FIELDS
    assert (row["latest"]["job"], row["latest"]["has_chat_template"]) == (str(job.pk), True)
    (file,) = row["latest"]["files"]
    assert set(file) == {"name", "size", "sha256"}
    detail = client.get(f"{URL}/{row['id']}").json()
    assert [item["id"] for item in detail["versions"]] == [str(version.pk)]
    whole = client.get(f"/api/v1/versions/{version.pk}").json()
    assert set(whole) == VERSION_FIELDS | {"chat_template"}


@pytest.mark.django_db
def test_latest_is_the_newest_ready_version(client, team):
    ready = factories.make_version(team=team)
    factories.make_version(ready.model, state=VersionState.FAILED)
    assert client.get(URL).json()["results"][0]["latest"]["id"] == str(ready.pk)


@pytest.mark.django_db
def test_import_answers_202_with_the_job(api, team, tmp_path):
    boss = factories.make_user(team, "member", is_superuser=True)
    path = tiny_models.write_gguf(tmp_path / "tiny.gguf")
    response = api(boss).post(f"{URL}/import", {"source": "path", "ref": str(path)})
    assert response.status_code == 202, response.content
    job = response.json()
    version = Version.objects.get(pk=job["subject_id"])
    assert (job["kind"], job["subject_type"], job["state"]) == ("registry.import", "version", "queued")
    assert (job["title"], version.state, version.number) == ("Import tiny v1", "importing", 1)
    assert job["requested_by"] == boss.username


@pytest.mark.django_db
def test_import_with_an_idempotency_key_starts_once(client):
    body = {"source": "demo"}
    first, second = (client.post(f"{URL}/import", body, HTTP_IDEMPOTENCY_KEY="k1").json() for _ in range(2))
    assert first["id"] == second["id"]
    assert Version.objects.count() == 1
    assert client.post(f"{URL}/import", body).json()["id"] != first["id"]
    assert sorted(Version.objects.values_list("number", flat=True)) == [1, 2]


@pytest.mark.django_db
def test_imports_with_one_key_at_the_same_time_start_once(client, monkeypatch):
    """The second has looked for the first in vain; it must leave no version without a job behind."""
    checked_ref, first = sources.checked_ref, []

    def meanwhile(*args):
        monkeypatch.setattr(sources, "checked_ref", checked_ref)
        first.append(client.post(f"{URL}/import", {"source": "demo"}, HTTP_IDEMPOTENCY_KEY="k1").json())
        return checked_ref(*args)

    monkeypatch.setattr(sources, "checked_ref", meanwhile)
    for name in ("", "another"):
        body = {"source": "demo", "name": name}
        second = client.post(f"{URL}/import", body, HTTP_IDEMPOTENCY_KEY="k1")
        assert (second.status_code, second.json()["id"]) == (202, first[0]["id"])
    assert (Model.objects.count(), Version.objects.count()) == (1, 1)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "source"),
        ({"source": "hub"}, "ref"),
        ({"source": "hub", "ref": "x" * 600}, "ref"),
        ({"source": "hub", "ref": "acme/tiny", "name": "a/b"}, "name"),
        ({"source": "demo", "ref": "another"}, "ref"),
        ({"source": ["demo"]}, "source"),
        ({"source": "path", "ref": "/etc/passwd"}, "ref"),
    ],
)
def test_bad_imports_name_the_field(client, body, field):
    error = assert_error_shape(client.post(f"{URL}/import", body), 400)
    assert field in error["fields"]
    assert not Model.objects.exists()


@pytest.mark.django_db
def test_unknown_source_names_those_that_exist(client):
    error = assert_error_shape(client.post(f"{URL}/import", {"source": "s3", "ref": "x"}), 404)
    assert "demo, hub, path" in error["hint"]


@pytest.mark.django_db
def test_import_needs_a_member(api, viewer):
    assert_error_shape(api(viewer).post(f"{URL}/import", {"source": "demo"}), 403)


@pytest.mark.django_db
def test_rename_to_a_taken_name_is_refused(client, team, other_team):
    model, other = factories.make_model(team), factories.make_model(team)
    elsewhere = factories.make_model(other_team)
    error = assert_error_shape(client.patch(f"{URL}/{model.pk}", {"name": other.name}), 409)
    assert "name" in error["fields"]
    assert_error_shape(client.patch(f"{URL}/{model.pk}", {"name": "../x"}), 400)
    assert client.patch(f"{URL}/{model.pk}", {"name": elsewhere.name}).json()["name"] == elsewhere.name


@pytest.mark.django_db
def test_alias_is_set_moved_and_removed(client, team):
    v1 = factories.make_version(team=team)
    v2 = factories.make_version(v1.model)
    url = f"{URL}/{v1.model.pk}/aliases/champion"
    for version in (v1, v2):
        body = client.put(url, {"version": str(version.pk)}).json()
        assert body["aliases"] == [{"name": "champion", "version": str(version.pk), "number": version.number}]
    assert Event.objects.filter(kind="model.alias_set").last().text.endswith("champion is now v2")
    assert client.delete(url).status_code == 204
    assert client.delete(url).status_code == 404
    assert not Alias.objects.exists()


@pytest.mark.django_db
def test_alias_never_points_at_a_version_that_is_not_ready_or_not_of_the_model(client, team):
    good = factories.make_version(team=team)
    failed = factories.make_version(good.model, state=VersionState.FAILED)
    elsewhere = factories.make_version(team=team)
    url = f"{URL}/{good.model.pk}/aliases/champion"
    assert_error_shape(client.put(url, {"version": str(failed.pk)}), 409)
    for other in (elsewhere.pk, uuid.uuid4()):
        assert "version" in assert_error_shape(client.put(url, {"version": str(other)}), 400)["fields"]
    assert_error_shape(client.put(f"{URL}/{good.model.pk}/aliases/Über", {"version": str(good.pk)}), 400)
    assert not Alias.objects.exists()


@pytest.mark.django_db
def test_version_in_use_is_kept(client, team):
    version = factories.make_version(team=team)
    deployment = factories.make_deployment(version=version)
    for url in (f"/api/v1/versions/{version.pk}", f"{URL}/{version.model.pk}"):
        error = assert_error_shape(client.delete(url), 409)
        assert (error["code"], deployment.name in error["message"]) == ("in_use", True)
    assert Version.objects.get().files.exists()


@pytest.mark.django_db
def test_version_with_an_alias_or_a_running_job_is_kept(client, team):
    alias = factories.make_alias()
    Model.objects.update(team=team)
    url = f"/api/v1/versions/{alias.version.pk}"
    assert "champion" in assert_error_shape(client.delete(url), 409)["message"]
    alias.delete()
    job = factories.make_job(team, subject_type="version", subject_id=alias.version_id, state=JobState.RUNNING)
    assert_error_shape(client.delete(url), 409)
    Job.objects.filter(pk=job.pk).update(state=JobState.SUCCEEDED)
    assert client.delete(url).status_code == 204


@pytest.mark.django_db
def test_deleted_model_takes_versions_aliases_and_lineage_along(client, team):
    model = make_whole_model(team)
    child, parent = model.versions.all()
    LineageEdge.objects.create(kind=LineageKind.QUANTIZED_FROM, parent=parent, child=child)
    assert client.delete(f"{URL}/{model.pk}").status_code == 204
    for rows in (Model, Version, Alias, LineageEdge):
        assert not rows.objects.exists()
    assert Event.objects.last().payload == {"id": str(model.pk)}


@pytest.mark.django_db
def test_every_event_of_a_version_names_its_model(client, team):
    """A list of models, patched or fetched anew by events, must know whose versions have changed."""
    job = client.post(f"{URL}/import", {"source": "demo", "name": "small"}).json()
    version = Version.objects.select_related("model").get(pk=job["subject_id"])
    services.version_failed(version=version, reason="The source is gone.")
    services.version_importing(version=version)
    Job.objects.update(state=JobState.CANCELLED)
    assert client.delete(f"/api/v1/versions/{version.pk}").status_code == 204
    told = Event.objects.filter(subject_type="version").order_by("sequence")
    assert [event.kind for event in told] == [f"version.{it}" for it in ("importing", "failed", "importing", "deleted")]
    assert {str(event.payload["model"]) for event in told} == {str(version.model_id)}


@pytest.mark.django_db
def test_lineage_shows_what_a_model_was_made_from_within_the_team(client, team, other_team):
    base = factories.make_version(team=team)
    small = factories.make_version(team=team)
    foreign = factories.make_version(team=other_team)
    edge = LineageEdge.objects.create(
        kind=LineageKind.QUANTIZED_FROM,
        parent=base,
        child=small,
        changes={"size": {"before": 100, "after": 30, "unit": "MB"}},
    )
    LineageEdge.objects.create(kind=LineageKind.DISTILLED_FROM, parent=foreign, child=small)
    body = client.get(f"{URL}/{small.model.pk}/lineage").json()
    assert {node["version"] for node in body["nodes"]} == {str(base.pk), str(small.pk)}
    assert [(row["id"], row["kind"], row["parent"], row["child"]) for row in body["edges"]] == [
        (str(edge.pk), "quantized_from", str(base.pk), str(small.pk))
    ]
    assert body["edges"][0]["changes"]["size"]["after"] == 30
