"""Diagnosis through the platform: a real engine looked into, who may, what is recorded, and an engine that refuses."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tursiops.accounts.models import AuditEntry
from tursiops.core.models import Event
from tursiops.deployments.models import Instance, InstanceState
from tursiops.secrets import seal_instance_token

from tests import factories
from tests.engines import shared_instances
from tests.engines.instances import Running
from tests.engines.traffic import traffic
from tests.platform.api_bases import assert_error_shape

pytestmark = pytest.mark.django_db
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"steps": 0}, "steps"),
    ({"steps": 201}, "steps"),
    ({"timeout_s": 61}, "timeout_s"),
    ({"n": 1}, "n"),
]


@pytest.fixture(scope="module")
def engine() -> Running:
    return shared_instances.tiny()


def served(team: Any, port: int, token: str, **fields: Any) -> Instance:
    """The row of an instance that listens there."""
    deployment = factories.make_deployment(team, name="helpdesk")
    sealed = seal_instance_token(token)
    listening = {"state": InstanceState.READY, "address": "127.0.0.1", "port": port, "token_encrypted": sealed}
    return factories.make_instance(deployment, **{**listening, **fields})


def url(instance: Instance, what: str) -> str:
    return f"/api/v1/instances/{instance.pk}/{what}"


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """An engine that says this to every question. Gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Not into the tests' output."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_a_trace_is_a_file_and_an_event(api, team, member, engine):
    instance = served(team, engine.state.port, engine.token)
    with traffic(engine, prompt=[5, 9, 60, 3], max_tokens=20):
        answer = api(member).post(url(instance, "trace"), {"steps": 4})
    assert answer.status_code == 200, answer.content
    assert answer.headers["Content-Disposition"] == 'attachment; filename="helpdesk-unified-0-trace.json.gz"'
    names = [event.get("name") for event in json.loads(gzip.decompress(answer.content))["traceEvents"]]
    assert names.count("launch") == 4
    event = Event.objects.get(kind="instance.traced")
    assert event.text == "helpdesk unified 0: a trace of 4 steps was taken."
    assert (event.actor, event.subject_id) == (member.username, instance.deployment_id)
    entry = AuditEntry.objects.get(action="instance.traced")
    assert entry.changes == {"instance": [None, str(instance.pk)], "steps": [None, 4]}


@pytest.mark.slow
def test_memory_is_a_table_and_a_snapshot_of_a_cpu_is_refused_in_the_engines_words(api, team, member, engine):
    instance = served(team, engine.state.port, engine.token)
    found = api(member).get(url(instance, "memory")).json()
    assert sum(part["bytes"] for part in found["parts"]) == found["total"] > 0
    assert found["process"]["api_resident"] > 0
    error = assert_error_shape(api(member).post(url(instance, "memory/snapshot"), {}), 400)
    assert error["code"] == "no_gpu"
    assert "this engine runs on 'cpu'" in error["message"]
    assert not Event.objects.filter(kind__startswith="instance.").exists()


@pytest.mark.slow
def test_an_engine_without_work_has_no_steps_to_trace(api, team, member, engine):
    instance = served(team, engine.state.port, engine.token)
    error = assert_error_shape(api(member).post(url(instance, "trace"), {"timeout_s": 1}), 409)
    assert error["code"] == "no_steps"
    assert "trace again meanwhile" in error["hint"]


@pytest.mark.parametrize(("method", "what"), [("post", "trace"), ("get", "memory"), ("post", "memory/snapshot")])
def test_members_of_the_team_may_and_nobody_else(api, team, viewer, member, outsider, method, what):
    instance = served(team, 9, "token", state=InstanceState.STARTING)

    def ask(user: Any) -> Any:
        return getattr(api(user), method)(url(instance, what))

    assert_error_shape(ask(None), 401)
    assert_error_shape(ask(viewer), 403)
    assert_error_shape(ask(outsider), 404)
    error = assert_error_shape(ask(member), 409)
    assert "is starting; only one that is ready" in error["message"]


@pytest.mark.parametrize(("body", "field"), WRONG)
def test_wrong_questions_are_refused_by_name(api, team, member, body, field):
    error = assert_error_shape(api(member).post(url(served(team, 9, "token"), "trace"), body), 400)
    assert set(error["fields"]) == {field}


@pytest.mark.parametrize(
    ("status", "body", "expected", "says"),
    [
        (404, b"", 400, "The engine native can't be looked into."),
        (409, b'{"error": {"message": "another trace runs", "code": "already_running"}}', 409, "another trace runs."),
        (500, b"<html>", 503, "it answered with status 500."),
        (401, b'{"error": {"message": "the bearer token is missing or wrong"}}', 503, "bearer token"),
    ],
)
def test_what_an_engine_refuses_is_told(api, team, member, status, body, expected, says):
    with answering(status, body) as port:
        error = assert_error_shape(api(member).post(url(served(team, port, "token"), "trace"), {}), expected)
    assert says in error["message"]
    assert not Event.objects.filter(kind="instance.traced").exists()


def test_an_engine_that_is_gone_and_a_token_of_another_installation(api, team, member):
    with answering(200, b"") as port:
        pass
    error = assert_error_shape(api(member).post(url(served(team, port, "token"), "trace"), {}), 503)
    assert "could not be asked" in error["message"]
    Instance.objects.update(token_encrypted="gAAAA-of-another")
    error = assert_error_shape(api(member).post(url(Instance.objects.get(), "trace"), {}), 503)
    assert error["hint"] == "Restart the instance."
