"""REST of suites and external endpoints: specs are checked by evaluation's own schemas, and reach nothing of others."""

from __future__ import annotations

import socket

import pytest
from tursiops.evaluations import specs, targets
from tursiops.evaluations.models import ExternalEndpoint, Suite

from tests import factories
from tests.platform.api_bases import CreateBase, DeleteBase, GetBase, ListBase, PatchBase, assert_error_shape

pytestmark = pytest.mark.django_db
SUITES = "/api/v1/evaluations/suites"
ENDPOINTS = "/api/v1/evaluations/endpoints"
SPEC = {"load": factories.LOAD}
LM_EVAL = {"kind": "lm_eval", "name": "known", "tasks": ["tursiops_bbh"]}
QUALITY = {"tasks": [{"kind": "rules", "name": "ours", "data": "bundled:business_example"}]}


class TestSuites(ListBase, GetBase, CreateBase, PatchBase, DeleteBase):
    url = SUITES
    make = staticmethod(factories.make_suite)
    patch_body = {"description": "Each night", "auto_baseline": False}

    def create_body(self, team):
        return {"name": factories.unique("suite"), "spec": SPEC}


class TestEndpoints(ListBase, GetBase, CreateBase, PatchBase, DeleteBase):
    url = ENDPOINTS
    make = staticmethod(factories.make_endpoint)
    patch_body = {"model": "another", "api": "completions"}

    @pytest.fixture(autouse=True)
    def resolves(self, monkeypatch):
        resolve(monkeypatch, "93.184.216.34")

    def create_body(self, team):
        return {"name": factories.unique("endpoint"), "url": "https://api.example.com/v1", "model": "m", "key": "sk-1"}


def resolve(monkeypatch, *found: str) -> None:
    def lookup(host, port, *args, **kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def load(**fields):
    return {"load": {**factories.LOAD, **fields}}


def quality(**fields):
    return {"quality": {**QUALITY, **fields}}


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        (load(load={"kind": "rate", "rate": -1}), "load.load.rate", "> 0"),
        (load(load={"kind": "rate", "rat": 1}), "load.load.rat", "Did you mean `rate`?"),
        (load(dataset={"kind": "sonnet"}), "load.dataset.kind", "synthetic"),
        ({"load": {"dataset": {"kind": "synthetic"}}}, "load.load", "Is missing"),
        (load(load={"kind": "search"}), "load.slo", "needs an objective"),
        (load(endpoint={"url": "http://10.0.0.1"}), "load.endpoint.url", "target of a run"),
        (load(endpoint={"api_key_env": "HOME"}), "load.endpoint.api_key_env", "target"),
        (load(endpoint={"tokenizer": "/etc"}), "load.endpoint.tokenizer", "target"),
        (load(dataset={"kind": "jsonl", "path": "/etc/passwd"}), "load.dataset.path", "corpus:"),
        (load(dataset={"kind": "jsonl", "path": "corpus:x"}), "load.dataset.path", "no corpus"),
        (quality(tasks=[]), "quality.tasks", "length"),
        (quality(tasks=[{**QUALITY["tasks"][0], "data": "../secrets"}]), "quality.tasks[0].data", "corpus:"),
        (quality(baseline="/srv/runs/1"), "quality.baseline", "are not read"),
        (quality(tasks=[{**QUALITY["tasks"][0], "data": "bundled:../x"}]), "quality.tasks[0].data", "There are: bbh"),
        (quality(tasks=[{**LM_EVAL, "tasks": ["ok", "../x.yaml"]}]), "quality.tasks[0].tasks[1]", "no name of a task"),
        (quality(tasks=[{**LM_EVAL, "include_path": "bundled:"}]), "quality.tasks[0].include_path", "not read"),
        (quality(tasks=[{**LM_EVAL, "data": "bundled:/../../x"}]), "quality.tasks[0].data", "rows of their own"),
        (quality(judge={"deployment": "ours", "timeout_s": 1e9}), "quality.judge.timeout_s", "At most 3600"),
        (load(steady={"max_s": 1e6}), "load.steady.max_s", "At most 3600 here"),
        (load(processes=1000), "load.processes", "1000 is too much for one run. At most 64 here."),
        (load(endpoint={"timeout_s": 1e5}), "load.endpoint.timeout_s", "At most 3600"),
        (load(load={"kind": "sweep", "rates": list(range(1, 66))}), "load.load.rates", "At most 64"),
        (quality(judge={"url": "http://10.0.0.1"}), "quality.judge.deployment", "no deployment"),
        (quality(judge={"deployment": "theirs"}), "quality.judge.deployment", "no deployment"),
        (quality(judge="gpt"), "quality.judge", "object"),
        (load() | {"profile": {"name": "shop"}}, "profile", "arrivals"),
        ({"laod": {}}, "laod", "Unknown part"),
        ({"load": 3}, "load", "object"),
    ],
)
def test_a_wrong_spec_names_its_path_and_the_fix(api, member, team, other_team, spec, path, says):
    factories.make_deployment(other_team, name="theirs")
    factories.make_deployment(team, name="ours")
    error = assert_error_shape(api(member).post(SUITES, {"name": "nightly", "spec": spec}), 400)
    assert says in error["fields"][f"spec.{path}"][0], error
    assert not Suite.objects.exists()


def test_a_spec_must_measure_something(api, member):
    error = assert_error_shape(api(member).post(SUITES, {"name": "nightly", "spec": {"load": None}}), 400)
    assert error["fields"] == {"spec": ["Nothing to run. Give load or quality."]}


def test_texts_are_the_teams_own_corpora(api, member, team, other_team, settings, tmp_path):
    settings.STORE_DIR = tmp_path
    from django.core.files.base import ContentFile
    from tursiops.core import store

    blob = store.put_stream(ContentFile(b"one\n").open())
    mine, theirs = (factories.make_corpus(owner, blob=blob) for owner in (team, other_team))

    def body(corpus):
        dataset = {"kind": "jsonl", "path": f"corpus:{corpus.pk}"}
        return {"name": factories.unique("suite"), "spec": {"load": {**factories.LOAD, "dataset": dataset}}}

    assert_error_shape(api(member).post(SUITES, body(theirs)), 400)
    assert api(member).post(SUITES, body(mine)).status_code == 201
    part = Suite.objects.get().current.spec["load"]
    assert part["dataset"]["path"] == f"corpus:{mine.pk}"  # stored as written
    whole = specs.for_run("load", part, endpoint={"url": "http://x"}, gateway={}, team=team, seed=3)
    assert (whole["dataset"]["path"], whole["seed"]) == (str(store.path_of(blob.pk)), 3)


def test_a_judge_is_a_deployment_of_the_team_asked_through_the_gateway(team):
    judge = factories.make_deployment(team)
    spec = specs.check({"quality": {**QUALITY, "judge": {"deployment": judge.name, "timeout_s": 9.0}}}, team)
    gateway = {"url": "http://gateway", "api_key_env": "KEY"}
    endpoint = {**gateway, "model": "mine"}
    whole = specs.for_run("quality", spec["quality"], endpoint=endpoint, gateway=gateway, team=team, seed=None)
    assert whole["judge"] == {**gateway, "model": judge.name, "timeout_s": 9.0}
    assert whole["endpoint"] == endpoint
    assert specs.served_names(spec) == [judge.name]


def test_a_changed_spec_is_the_next_version_and_runs_keep_theirs(api, member, team):
    suite = factories.make_suite(team)
    run = factories.make_run(suite)
    url = f"{SUITES}/{suite.pk}"
    other = {"load": {**factories.LOAD, "load": {"kind": "rate", "rate": 5.0}}}
    assert api(member).patch(url, {"spec": {**suite.current.spec}}).json()["version"] == 1
    assert api(member).patch(url, {"spec": other}).json()["version"] == 2
    assert [row["number"] for row in api(member).get(f"{url}/versions").json()] == [2, 1]
    assert api(member).get(f"/api/v1/evaluations/runs/{run.pk}").json()["spec"]["load"] == factories.LOAD


def test_what_a_gate_rests_on_is_changed_by_admins_alone(api, member, admin, team):
    suite = factories.make_suite(team)
    gate = factories.make_gate(suite)
    url, easier = f"{SUITES}/{suite.pk}", {"spec": load(load={"kind": "rate", "rate": 0.1})}
    error = assert_error_shape(api(member).patch(url, easier), 403)
    assert error["message"] == (
        f"The gate {gate.name} rests on {suite.name}: only an admin of the team changes what it measures."
    )
    assert api(member).patch(url, {"spec": suite.current.spec, "description": "as it was"}).status_code == 200
    assert api(admin).patch(url, easier).json()["version"] == 2
    gate.enabled = False
    gate.save()
    assert api(member).patch(url, {"spec": SPEC}).json()["version"] == 3


def test_an_endpoints_key_goes_to_no_judge(api, member, team, monkeypatch):
    resolve(monkeypatch, "93.184.216.34")
    judge, endpoint = factories.make_deployment(team), factories.make_endpoint(team)
    suite = factories.make_suite(team, spec={"quality": {**QUALITY, "judge": {"deployment": judge.name}}})
    body = {"suite": str(suite.pk), "endpoint": str(endpoint.pk)}
    error = assert_error_shape(api(member).post("/api/v1/evaluations/runs", body), 400)
    assert f"asks {judge.name}, too: a run has one key" in error["fields"]["endpoint"][0]


def test_names_are_taken_once(api, member, team):
    suite = factories.make_suite(team)
    error = assert_error_shape(api(member).post(SUITES, {"name": suite.name, "spec": SPEC}), 400)
    assert "taken" in error["fields"]["name"][0]


def test_a_suite_in_use_is_not_deleted_and_says_by_what(api, member, team):
    suite = factories.make_suite(team)
    gate, schedule = factories.make_gate(suite), factories.make_schedule(suite)
    run = factories.make_run(suite, state="running", verdict="")
    error = assert_error_shape(api(member).delete(f"{SUITES}/{suite.pk}"), 409)
    for name in (gate.name, schedule.name, run.target_name):
        assert name in error["message"]
    gate.delete(), schedule.delete()
    run.state = "completed"
    run.save()
    factories.make_baseline(run)
    assert api(member).delete(f"{SUITES}/{suite.pk}").status_code == 204


@pytest.mark.parametrize(
    ("url", "found", "says"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", "inside this network"),
        ("http://169.254.169.254/latest", "169.254.169.254", "inside this network"),
        ("http://intra.example.com", "10.1.2.3", "10.1.2.3"),
        ("http://mapped.example.com", "::ffff:10.0.0.1", "inside this network"),
        ("http://[::1]:80", "::1", "inside this network"),
        ("http://group.example.com", "224.0.0.1", "inside this network"),
        ("file:///etc/passwd", "1.1.1.1", "http"),
        ("https://user:secret@example.com", "1.1.1.1", "give the key"),
        ("https://example.com/?q=1", "1.1.1.1", "query"),
        ("http://example.com:99999", "1.1.1.1", "no address"),
        ("https://", "1.1.1.1", "name a host"),
    ],
)
def test_addresses_that_only_the_server_reaches_are_refused(api, member, monkeypatch, url, found, says):
    resolve(monkeypatch, "1.1.1.1", found)  # one of several is enough
    error = assert_error_shape(api(member).post(ENDPOINTS, {"name": "x", "url": url, "model": "m"}), 400)
    assert says in error["fields"]["url"][0]


def test_hosts_inside_are_named_by_the_installations_admin(settings):
    settings.EVALUATION_HOSTS = ["127.0.0.1:9000"]
    assert targets.check_url("http://127.0.0.1:9000/v1/") == "http://127.0.0.1:9000"
    with pytest.raises(Exception, match="inside this network"):
        targets.check_url("http://127.0.0.1:9001")


def test_keys_are_kept_encrypted_and_go_to_no_other_address(api, member, monkeypatch):
    resolve(monkeypatch, "93.184.216.34")
    body = {"name": "theirs", "url": "https://api.example.com", "model": "m", "key": "sk-very-secret"}
    answer = api(member).post(ENDPOINTS, body)
    assert "sk-very" not in answer.content.decode()
    assert answer.json()["has_key"] is True
    row = ExternalEndpoint.objects.get()
    assert "sk-very" not in row.key_encrypted
    assert targets.open_key(row) == "sk-very-secret"
    url = f"{ENDPOINTS}/{row.pk}"
    error = assert_error_shape(api(member).patch(url, {"url": "https://thief.example.com"}), 400)
    assert "key" in error["fields"]
    assert api(member).patch(url, {"name": "renamed"}).json()["has_key"] is True
    moved = api(member).patch(url, {"url": "https://new.example.com", "key": ""}).json()
    assert (moved["url"], moved["has_key"]) == ("https://new.example.com", False)


def test_an_endpoint_in_use_is_not_deleted(api, member, team):
    endpoint = factories.make_endpoint(team)
    schedule = factories.make_schedule(team=team, endpoint=endpoint)
    error = assert_error_shape(api(member).delete(f"{ENDPOINTS}/{endpoint.pk}"), 409)
    assert schedule.name in error["message"]
    schedule.delete()
    run = factories.make_run(team=team, endpoint=endpoint)
    assert api(member).delete(f"{ENDPOINTS}/{endpoint.pk}").status_code == 204
    shown = api(member).get(f"/api/v1/evaluations/runs/{run.pk}").json()
    assert shown["target"] == {"kind": "endpoint", "id": None, "name": endpoint.name}
