"""REST of deployments, instances and engines."""

from __future__ import annotations

from typing import Any

import pytest
from tursiops.accounts.models import AuditEntry
from tursiops.core.models import Event
from tursiops.deployments import serializers
from tursiops.deployments.models import Deployment, Desired, Instance, InstanceState
from tursiops.deployments.rows import deployment_row

from engines.api import RunDir
from tests import factories
from tests.platform.api_bases import CreateBase, DeleteBase, GetBase, ListBase, PatchBase, assert_error_shape

URL = "/api/v1/deployments"


def make(team):
    deployment = factories.make_deployment(team, revision={"engine": "tiny"})
    factories.make_instance(deployment)
    return deployment


class TestDeployments(ListBase, GetBase, CreateBase, PatchBase, DeleteBase):
    url = URL
    make = staticmethod(make)
    patch_body = {"description": "changed"}

    def create_body(self, team: Any) -> dict[str, Any]:
        version = factories.make_version(team=team)
        return {
            "name": factories.unique("served"),
            "version": str(version.pk),
            "replicas": {"unified": 1},
            "engine": "tiny",
        }


@pytest.fixture
def client(api, member):
    return api(member)


@pytest.fixture
def version(team):
    return factories.make_version(team=team)


@pytest.fixture
def body(version):
    return {"name": "smollm2", "version": str(version.pk), "replicas": {"unified": 1}, "engine": "tiny"}


def test_answer_has_the_fields_of_the_schema(client, body, node):
    answer = client.post(URL, body).json()
    assert set(answer) == set(serializers.DeploymentSerializer().fields)
    assert set(answer["revision"]) == set(serializers.RevisionSerializer().fields)
    deployment = Deployment.objects.get(pk=answer["id"])
    factories.make_instance(deployment)
    answer = client.get(f"{URL}/{deployment.pk}").json()
    assert set(answer["instances"][0]) == set(serializers.InstanceSerializer().fields)


def test_create_leaves_audit_and_event(client, body, node, member):
    answer = client.post(URL, body).json()
    entry = AuditEntry.objects.get(action="deployment.created")
    assert entry.actor == member.username
    assert entry.changes["engine"] == [None, "tiny"]
    event = Event.objects.get(kind="deployment.created")
    assert event.payload["id"] == answer["id"]
    assert event.payload == answer
    assert answer["state"] == "starting"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "Bad Name"}, "name"),
        ({"name": "../up"}, "name"),
        ({"name": ""}, "name"),
        ({"replicas": {}}, "replicas"),
        ({"replicas": {"unified": -1}}, "replicas"),
        ({"replicas": {"unified": 65}}, "replicas"),
        ({"replicas": {"captain": 1}}, "replicas"),
        ({"replicas": {"prefill": 1}}, "replicas"),
        ({"engine": "vroom"}, "engine"),
        ({"device": "abacus"}, "device"),
        ({"dtype": "float3"}, "dtype"),
        ({"max_model_len": 100_000}, "max_model_len"),
        ({"max_model_len": -1}, "max_model_len"),
        ({"node_name": "nowhere"}, "node_name"),
        ({"gpu_indices": [0, 0]}, "gpu_indices"),
        ({"gpu_indices": [0], "device": "cpu"}, "gpu_indices"),
        ({"gpu_indices": [0], "gpus_per_replica": 2}, "gpu_indices"),
        ({"options": {"unknown": 1}}, "options"),
        ({"options": {"load_s": -1}}, "options"),
        ({"version": "not-an-id"}, "version"),
        ({"version": "00000000-0000-7000-8000-000000000000"}, "version"),
    ],
)
def test_bad_input_names_the_field(client, body, node, change, field):
    error = assert_error_shape(client.post(URL, {**body, **change}), 400)
    assert field in error["fields"], error
    assert not Deployment.objects.exists()


def test_unready_version_is_refused_with_its_reason(client, body, version, node):
    version.state, version.reason = "failed", "The file is cut short."
    version.save()
    error = assert_error_shape(client.post(URL, body), 400)
    assert "cut short" in error["message"]


def test_version_of_another_team_is_unknown(client, body, other_team, node):
    theirs = factories.make_version(team=other_team)
    error = assert_error_shape(client.post(URL, {**body, "version": str(theirs.pk)}), 400)
    assert "version" in error["fields"]


def test_name_is_unique_in_the_team_and_free_after_delete(client, body, node, api, outsider, other_team):
    first = client.post(URL, body).json()
    assert "name" in assert_error_shape(client.post(URL, body), 400)["fields"]
    theirs = {**body, "version": str(factories.make_version(team=other_team).pk)}
    assert api(outsider).post(URL, theirs).status_code == 201
    assert client.delete(f"{URL}/{first['id']}").status_code == 204
    assert client.post(URL, body).status_code == 201


def test_what_can_never_fit_is_refused_unless_forced(client, body, version, node):
    version.size_bytes = 99_000_000_000
    version.save()
    error = assert_error_shape(client.post(URL, body), 400)
    assert error["code"] == "does_not_fit"
    assert f"{node.name}: Memory: 22.35 GiB free of 29.80 GiB, needs 92.44 GiB" in error["message"]
    assert "force" in error["hint"]
    assert "shorter max_model_len" in error["hint"]
    assert client.post(URL, {**body, "force": True}).status_code == 201


def test_what_only_waits_for_a_node_is_accepted(client, body):
    assert client.post(URL, body).status_code == 201


def test_case_6_chosen_gpu_that_is_absent_is_refused_by_name(client, body, node):
    error = assert_error_shape(client.post(URL, {**body, "gpu_indices": [3]}), 400)
    assert "no GPU" in error["message"]


def test_case_3_estimate_says_what_the_memory_is_for(client, body, node):
    answer = client.post(f"{URL}/estimate", body).json()
    assert set(answer) == set(serializers.EstimateSerializer().fields)
    cache = 8192 * 30 * 1024
    assert answer["memory"]["weights"] == 98_000_000
    assert answer["memory"]["kv_cache"] == cache
    assert answer["memory"]["total"] == 98_000_000 + cache
    assert answer["kv_tokens"] == 8192
    assert (answer["fits"], answer["node"], answer["rejected"]) == (True, node.name, [])
    shorter = client.post(f"{URL}/estimate", {**body, "max_model_len": 1024}).json()
    assert shorter["memory"]["kv_cache"] == cache // 8


def test_estimate_counts_all_replicas(client, body, version, node):
    version.size_bytes = 10_000_000_000
    version.save()
    answer = client.post(f"{URL}/estimate", {**body, "replicas": {"unified": 3}}).json()
    assert not answer["fits"]
    assert answer["reason"].startswith("2 of 3 replicas fit.")


def test_case_5_estimate_without_a_matching_node_says_which_filter(client, body):
    factories.make_node(name="closed", cordoned=True)
    answer = client.post(f"{URL}/estimate", {**body, "device": "cuda"}).json()
    assert not answer["fits"]
    assert "closed: It is cordoned" in answer["reason"]


def test_estimate_of_an_edit_does_not_count_what_it_replaces(client, body, version, node):
    version.size_bytes = 20_000_000_000
    version.save()
    deployment = Deployment.objects.get(pk=client.post(URL, body).json()["id"])
    node.memory_available = 4_000_000_000
    node.save()
    factories.make_instance(
        deployment, node=node, state=InstanceState.READY, placement={"bytes": 20_000_000_000, "device": "cpu"}
    )
    assert client.post(f"{URL}/estimate", body).json()["fits"]
    assert not client.post(f"{URL}/estimate", {**body, "name": "another"}).json()["fits"]


def test_case_45_edit_says_which_fields_restart(client, body, node):
    url = f"{URL}/{client.post(URL, body).json()['id']}"
    assert client.patch(url, {"description": "x", "replicas": {"unified": 2}}).json()["restarts"] == []
    answer = client.patch(url, {"max_num_seqs": 4, "options": {"load_s": 1}, "engine": "tiny"}).json()
    assert answer["restarts"] == ["max_num_seqs", "options"]
    assert answer["revision"]["number"] == 2
    assert [row["number"] for row in client.get(f"{url}/revisions").json()] == [2, 1]


def test_rollback_points_back(client, body, node):
    url = f"{URL}/{client.post(URL, body).json()['id']}"
    client.patch(url, {"max_num_seqs": 4})
    answer = client.post(f"{url}/rollback", {"revision": 1}).json()
    assert answer["restarts"] == ["max_num_seqs"]
    assert answer["revision"]["number"] == 1
    assert_error_shape(client.post(f"{url}/rollback", {"revision": 1}), 409)
    assert "Revisions: 2, 1" in assert_error_shape(client.post(f"{url}/rollback", {"revision": 9}), 404)["hint"]


def test_scale_stop_start(client, body, node):
    url = f"{URL}/{client.post(URL, body).json()['id']}"
    assert client.post(f"{url}/scale", {"replicas": {"unified": 0}}).json()["state"] == "stopped"
    assert client.post(f"{url}/scale", {"replicas": {"unified": 2}}).json()["replicas"] == {"unified": 2}
    assert_error_shape(client.post(f"{url}/scale", {"replicas": {"unified": 1.5}}), 400)
    assert client.post(f"{url}/stop").json()["state"] == "stopped"
    assert client.post(f"{url}/start").json()["state"] == "starting"
    kinds = list(Event.objects.values_list("kind", flat=True))
    assert kinds == ["deployment.created", *["deployment.scaled"] * 2, "deployment.stopped", "deployment.started"]


def test_deleted_deployment_shows_until_its_instances_are_gone(client, team):
    deployment = make(team)
    url = f"{URL}/{deployment.pk}"
    client.delete(url)
    assert client.get(url).json()["state"] == "deleting"
    assert_error_shape(client.post(f"{url}/start"), 404)
    Instance.objects.all().delete()
    assert_error_shape(client.get(url), 404)


@pytest.mark.parametrize("what", ["scale", "stop", "start", "rollback"])
def test_changes_need_a_member(api, viewer, outsider, team, what):
    url = f"{URL}/{make(team).pk}/{what}"
    body = {"scale": {"replicas": {"unified": 1}}, "rollback": {"revision": 1}}.get(what, {})
    assert_error_shape(api(viewer).post(url, body), 403)
    assert_error_shape(api(outsider).post(url, body), 404)


def test_events_of_one_deployment(client, body, node):
    first = client.post(URL, body).json()
    client.post(URL, {**body, "name": "other"})
    client.post(f"{URL}/{first['id']}/stop")
    answer = client.get(f"{URL}/{first['id']}/events").json()
    assert [event["kind"] for event in answer["events"]] == ["deployment.created", "deployment.stopped"]
    assert answer["last_event_id"] == 3
    after = client.get(f"{URL}/{first['id']}/events?after=1").json()["events"]
    assert [event["id"] for event in after] == [3]


def test_instance_log_begins_with_the_tail_and_goes_on(client, team, settings, tmp_path):
    settings.RUN_DIR = tmp_path
    deployment = make(team)
    node = factories.make_node(name=settings.NODE_NAME)
    row = deployment.instances.get()
    Instance.objects.filter(pk=row.pk).update(node=node, state=InstanceState.READY)
    url = f"/api/v1/instances/{row.pk}/log"
    assert client.get(url).json() == {"text": "", "next": 0, "ended": False}
    run = RunDir(tmp_path / "instances" / str(row.pk))
    run.path.mkdir(parents=True)
    run.log_path.write_text("line é\n" * 20_000)
    page = client.get(url).json()
    assert page["text"].startswith("line é\n")
    assert len(page["text"].encode()) <= 64 * 1024
    with run.log_path.open("a") as file:
        file.write("news\n")
    more = client.get(url, {"after": page["next"]}).json()
    assert more["text"].endswith("news\n")
    assert client.get(url, {"after": more["next"]}).json()["text"] == ""
    assert_error_shape(client.get(url, {"after": -1}), 400)


def test_instance_log_on_another_node_says_where_it_lies(client, team, node):
    deployment = make(team)
    Instance.objects.update(node=node)
    row = deployment.instances.get()
    error = assert_error_shape(client.get(f"/api/v1/instances/{row.pk}/log"), 503)
    assert node.name in error["message"]


def test_instances_of_another_team_are_not_found(api, outsider, viewer, team):
    row = make(team).instances.get()
    for path in ("", "/log"):
        assert_error_shape(api(outsider).get(f"/api/v1/instances/{row.pk}{path}"), 404)
    assert_error_shape(api(outsider).post(f"/api/v1/instances/{row.pk}/restart"), 404)
    assert_error_shape(api(viewer).post(f"/api/v1/instances/{row.pk}/restart"), 403)


def test_restart_of_an_instance(client, team, node):
    row = make(team).instances.get()
    Instance.objects.filter(pk=row.pk).update(state=InstanceState.FAILED, restarts=6, node=node)
    answer = client.post(f"/api/v1/instances/{row.pk}/restart").json()
    assert (answer["state"], answer["restarts"]) == ("scheduled", 0)
    Instance.objects.filter(pk=row.pk).update(desired=Desired.STOPPED)
    assert_error_shape(client.post(f"/api/v1/instances/{row.pk}/restart"), 409)


def test_engines(client):
    rows = {row["name"]: row for row in client.get("/api/v1/engines").json()}
    assert rows["tiny"]["capabilities"]["formats"] == ["gguf"]
    assert rows["tiny"]["options_schema"]["type"] == "object"


def test_row_of_an_event_equals_the_row_of_the_list(client, body, node, team):
    """Clients apply events over their snapshot: both must look the same."""
    client.post(URL, body)
    deployment = Deployment.objects.get()
    factories.make_instance(deployment, node=node, state=InstanceState.READY)
    assert client.get(URL).json()["results"] == [deployment_row(deployment)]
