"""Speculation of deployments: the option and the draft version, from the form to the engine; live figures."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tursiops.core import registry
from tursiops.deployments import speculation_api, speculation_live
from tursiops.deployments.models import Deployment, InstanceState
from tursiops.deployments.rooms import nodes_with_files
from tursiops.deployments.specs import local_of_instance, spec_of_instance
from tursiops.secrets import seal_instance_token

from engines.api import Capabilities, Draft
from tests import factories
from tests.platform.api_bases import assert_error_shape
from tests.platform.fleet.tiny_engine import TinyEngine

pytestmark = [pytest.mark.django_db, pytest.mark.speculation]
URL = "/api/v1/deployments"
LARGE = {**factories.SMOLLM2_SHAPE, "parameters": 1_700_000_000, "hidden": 2048}


class GuessingEngine(TinyEngine):
    name = "guessing"

    def capabilities(self) -> Capabilities:
        known = super().capabilities()
        return Capabilities(
            known.formats, known.architectures, known.devices, known.dtypes, known.roles, [],
            proposers=["lookahead", "draft", "eagle3"], drafting=["draft", "eagle3"],
        )  # fmt: skip

    def options_schema(self) -> dict[str, Any]:
        schema = super().options_schema()
        schema["properties"]["speculation"] = {"type": "string", "default": "auto"}
        return schema


@pytest.fixture(autouse=True)
def guessing() -> Iterator[None]:
    with registry.engines.register_temporarily("guessing", GuessingEngine):
        yield


@pytest.fixture
def client(api, member):
    return api(member)


@pytest.fixture
def target(team):
    return factories.make_version(team=team, shape=LARGE)


@pytest.fixture
def small(team):
    return factories.make_version(team=team, files={"small.gguf": factories.make_blob(b"small", "here")})


@pytest.fixture
def body(target, node):
    return {"name": "helpdesk", "version": str(target.pk), "replicas": {"unified": 1}, "engine": "guessing"}


def head(team: Any, **fields: Any) -> Any:
    shape = {"task": "eagle3", "architecture": "eagle3", "hidden": 2048, "vocab": 49152, "parameters": 9_000_000}
    return factories.make_version(team=team, architecture="eagle3", shape=shape, tokenizer={}, **fields)


def test_option_and_draft_are_of_a_revision_and_roll_back_with_it(client, body, small, target):
    given = {"options": {"speculation": "lookahead+draft"}, "draft_version": str(small.pk)}
    made = client.post(URL, {**body, **given}).json()
    revision = made["revision"]
    assert (revision["draft_version"], revision["draft_label"]) == (str(small.pk), str(small))
    assert revision["options"] == {"speculation": "lookahead+draft"}
    changed = client.patch(f"{URL}/{made['id']}", {"draft_version": None, "options": {"speculation": "off"}}).json()
    assert changed["restarts"] == ["draft_version", "options"]
    assert (changed["revision"]["number"], changed["revision"]["draft_version"]) == (2, None)
    same = client.patch(f"{URL}/{made['id']}", {"draft_version": None}).json()
    assert (same["restarts"], same["revision"]["number"]) == ([], 2)
    back = client.post(f"{URL}/{made['id']}/rollback", {"revision": 1}).json()
    assert back["restarts"] == ["draft_version", "options"]
    assert back["revision"]["draft_label"] == str(small)
    listed = client.get(f"{URL}/{made['id']}/revisions").json()
    assert [row["draft_version"] for row in listed] == [None, str(small.pk)]
    error = assert_error_shape(client.delete(f"/api/v1/versions/{small.pk}"), 409)
    assert "helpdesk" in error["message"]


def test_what_can_not_be_is_refused_by_field(client, body, small, target, team):
    other = factories.make_version(team=team, shape={**factories.SMOLLM2_SHAPE, "vocab": 32_000})
    theirs = factories.make_version(team=factories.make_team())
    eagle = head(team)
    wrong: list[tuple[Any, Any, str, tuple[str, ...]]] = [
        ("lookahaed", None, "options", ("'lookahaed'", "auto, off, lookahead, draft, eagle3")),
        ("lookahead+lookahead", None, "options", ("twice",)),
        ("draft+eagle3", small, "options", ("one draft version",)),
        ("lookahead+draft", None, "draft_version", ("'draft'",)),
        ("auto", other, "draft_version", ("32,000", "49,152")),
        ("off", target, "draft_version", ("itself",)),
        ("draft", eagle, "draft_version", ("'eagle3'",)),
        ("eagle3", small, "draft_version", ("'draft'",)),
        ("auto", eagle, "draft_version", ("by itself", "lookahead+eagle3")),
        ("draft", theirs, "draft_version", ()),
    ]
    for mode, draft, field, words in wrong:
        given = {"options": {"speculation": mode}, "draft_version": str(draft.pk) if draft else None}
        error = assert_error_shape(client.post(URL, {**body, **given}), 400)
        assert field in error["fields"], (mode, error)
        assert all(word in error["message"] + error["hint"] for word in words), (mode, error)
    plain = {**body, "engine": "tiny", "draft_version": str(small.pk)}
    assert "takes no draft" in assert_error_shape(client.post(URL, plain), 400)["message"]
    assert not Deployment.objects.exists()


@pytest.mark.parametrize(
    ("mode", "taken"),
    [(None, True), ("auto", True), ("draft", True), ("lookahead+draft", True), ("lookahead", False), ("off", False)],
)
def test_the_engine_gets_the_draft_where_the_option_makes_use_of_it(team, target, small, mode, taken, monkeypatch):
    options = {"speculation": mode} if mode else {}
    revision = {"engine": "guessing", "options": options, "draft_version": small}
    deployment = factories.make_deployment(team, version=target, revision=revision)
    instance = factories.make_instance(deployment)
    monkeypatch.setattr("tursiops.core.store.path_of", lambda digest: f"/store/{digest}")
    spec, local = spec_of_instance(instance), local_of_instance(instance, host="127.0.0.1", token="t")
    blob = small.files.get().blob
    if not taken:
        assert (spec.draft, local.draft_paths) == (None, {})
        return
    assert isinstance(spec.draft, Draft)
    assert [(file.name, file.sha256) for file in spec.draft.files] == [("small.gguf", blob.pk)]
    assert (spec.draft.format, spec.draft.shape.parameters) == ("gguf", factories.SMOLLM2_SHAPE["parameters"])  # type: ignore[union-attr]
    assert local.draft_paths == {"small.gguf": f"/store/{blob.pk}"}
    assert set(local.paths) == {"tiny.gguf"}


def test_a_node_must_have_the_files_of_both(team, target, small):
    with_both = factories.make_deployment(team, version=target, revision={"engine": "guessing", "draft_version": small})
    assert nodes_with_files(with_both.current) == set()
    factories.make_blob(b"small", "here")
    version = factories.make_version(team=team, shape=LARGE, files={"l.gguf": factories.make_blob(b"large", "here")})
    both = factories.make_deployment(team, version=version, revision={"engine": "guessing", "draft_version": small})
    assert nodes_with_files(both.current) == {"here"}


def test_the_estimate_counts_the_draft_where_it_is_used(client, body, small):
    asked = {**body, "engine": "native", "device": "cpu", "max_model_len": 2048, "draft_version": str(small.pk)}
    estimates = {
        mode: client.post(f"{URL}/estimate", {**asked, "options": {"speculation": mode}}).json()
        for mode in ("auto", "lookahead+draft", "lookahead", "off")
    }
    both, alone = estimates["auto"], estimates["off"]
    assert both["memory"]["weights"] - alone["memory"]["weights"] > factories.SMOLLM2_SHAPE["parameters"]
    assert both["memory"]["kv_cache"] > alone["memory"]["kv_cache"]
    assert both["kv_tokens"] == alone["kv_tokens"]
    assert estimates["lookahead+draft"] == both
    guessing = estimates["lookahead"]
    assert guessing["memory"]["verification"] == both["memory"]["verification"] > alone["memory"]["verification"] == 0
    for part in ("weights", "kv_cache", "activations", "overhead"):
        assert guessing["memory"][part] == alone["memory"][part], "the draft is not counted"


FIGURES: dict[str, Any] = {
    "window_s": 60.0, "steps": 10, "verified_steps": 4, "rows": 8, "drafted_tokens": 20, "accepted_tokens": 12,
    "tokens": 30, "guessed_tokens": 12, "acceptance_length": 2.5, "hit_rate": 0.6, "tokens_per_step": 30 / 18,
    "share_speculated": 0.4, "saved_s": 0.5, "speedup": 1.5, "width": 3,
    "sources": [{"source": "lookahead", "drafted": 20, "accepted": 12, "hit_rate": 0.6}],
}  # fmt: skip


@contextmanager
def engine(told: Any, status: int = 200) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """An engine that answers with this. Gives its port, and what it was asked: (path, token)."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Not into the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listening(deployment: Any, port: int, token: str = "secret") -> Any:
    sealed = seal_instance_token(token)
    return factories.make_instance(
        deployment, state=InstanceState.READY, address="127.0.0.1", port=port, token_encrypted=sealed
    )


def test_live_figures_of_each_instance_and_of_all(api, viewer, team):
    second = {**FIGURES, "verified_steps": 8, "rows": 8, "drafted_tokens": 10, "accepted_tokens": 4, "speedup": 3.0}
    second |= {"steps": 8, "tokens": 20, "guessed_tokens": 4, "width": 5}
    second["sources"] = [{"source": "draft", "drafted": 10, "accepted": 4, "hit_rate": 0.4}]
    deployment = factories.make_deployment(team, revision={"engine": "guessing"})
    told = [
        {"mode": "auto", "proposers": ["lookahead"], "since_start": each, "recent": each} for each in (FIGURES, second)
    ]
    with engine(told[0]) as (one, asked), engine(told[1]) as (two, _):
        first = listening(deployment, one)
        listening(deployment, two)
        factories.make_instance(deployment, state=InstanceState.STARTING)
        answer = api(viewer).get(f"{URL}/{deployment.pk}/speculation").json()
        alone = api(viewer).get(f"/api/v1/instances/{first.pk}/speculation").json()
    assert asked[0] == ("/debug/speculation", "Bearer secret")
    assert set(answer) == set(speculation_api.DeploymentSpeculationSerializer().fields)
    assert (answer["speculation"], answer["draft_version"]) == ("auto", None)
    rows = answer["instances"]
    assert [row["recent"] for row in rows] == [FIGURES, second, None]
    assert rows[0] == alone
    assert rows[0]["reason"] == ""
    assert "starting" in rows[2]["reason"]
    whole = answer["recent"]
    assert (whole["steps"], whole["verified_steps"], whole["tokens"]) == (18, 12, 50)
    assert whole["acceptance_length"] == 1 + 16 / 16
    assert whole["hit_rate"] == 16 / 30
    assert whole["tokens_per_step"] == 50 / 34
    assert whole["speedup"] == (1.5 * 4 + 3.0 * 8) / 12
    assert whole["width"] == 5
    assert whole["sources"] == [
        {"source": "lookahead", "drafted": 20, "accepted": 12, "hit_rate": 0.6},
        {"source": "draft", "drafted": 10, "accepted": 4, "hit_rate": 0.4},
    ]


@pytest.mark.parametrize(
    ("told", "status", "reason"),
    [
        ({"mode": "off", "proposers": [], "since_start": None, "recent": None}, 200, "It does not speculate."),
        ({"error": {"message": "not found"}}, 404, "can't be looked into"),
        ({"error": {"message": "the engine is draining"}}, 503, "draining"),
        ({"mode": "auto"}, 200, "can't be read"),
    ],
)
def test_an_engine_without_figures_says_why(api, viewer, team, told, status, reason):
    deployment = factories.make_deployment(team, revision={"engine": "guessing", "options": {"speculation": "off"}})
    with engine(told, status) as (port, _):
        listening(deployment, port)
        answer = api(viewer).get(f"{URL}/{deployment.pk}/speculation").json()
    assert (answer["speculation"], answer["since_start"], answer["recent"]) == ("off", None, None)
    assert reason in answer["instances"][0]["reason"]


def test_engines_are_asked_at_once_and_a_slow_one_keeps_nobody_waiting(api, viewer, team, monkeypatch):
    monkeypatch.setattr(speculation_live, "ASK_S", 0.4)
    deployment = factories.make_deployment(team, revision={"engine": "guessing"})
    told = {"mode": "auto", "proposers": ["lookahead"], "since_start": FIGURES, "recent": FIGURES}
    with engine(told) as (port, _), socket.create_server(("127.0.0.1", 0)) as deaf:
        for _ in range(3):
            listening(deployment, deaf.getsockname()[1])
        quick = listening(deployment, port)
        begun = time.monotonic()
        answer = api(viewer).get(f"{URL}/{deployment.pk}/speculation").json()
        took = time.monotonic() - begun
    assert took < 1.1, "three that are silent are waited for together"
    rows = {row["instance"]: row for row in answer["instances"]}
    assert rows.pop(str(quick.pk))["recent"] == FIGURES
    assert answer["recent"]["steps"] == FIGURES["steps"]
    for row in rows.values():
        assert row["recent"] is None
        assert row["reason"] == "It did not answer within 0.4 seconds."


def test_another_teams_deployment_is_unknown(api, viewer):
    deployment = factories.make_deployment(factories.make_team())
    instance = factories.make_instance(deployment)
    assert_error_shape(api(viewer).get(f"{URL}/{deployment.pk}/speculation"), 404)
    assert_error_shape(api(viewer).get(f"/api/v1/instances/{instance.pk}/speculation"), 404)


def test_sums_of_nothing_are_no_numbers() -> None:
    nothing = dict.fromkeys(FIGURES, 0) | {"speedup": None, "sources": []}
    found = speculation_live.summed([nothing, None])
    assert found is not None
    rates = ("acceptance_length", "hit_rate", "tokens_per_step", "share_speculated", "speedup")
    assert [found[name] for name in rates] == [None] * 5
    assert speculation_live.summed([None]) is None


def test_engines_tell_what_they_propose(client):
    known = {row["name"]: row["capabilities"] for row in client.get("/api/v1/engines").json()}
    assert {"lookahead", "ngram", "draft"} <= set(known["native"]["proposers"])
    assert known["tiny"]["proposers"] == []
