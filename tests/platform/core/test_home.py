"""Checklist and overview: what they count, for whom, and with how many queries."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from tursiops.core.home import percentile
from tursiops.deployments.models import InstanceState
from tursiops.jobs.models import JobState

from tests import factories
from tests.platform.api_bases import assert_error_shape

pytestmark = pytest.mark.django_db


def test_checklist_starts_empty_and_follows_what_was_done(api, team, member, other_team):
    factories.make_version(team=other_team)
    factories.make_usage(other_team, user_id=member.pk)
    client = api(member)
    steps = client.get("/api/v1/checklist").json()
    assert [(step["key"], step["done"], step["at"]) for step in steps] == [
        ("model", False, None), ("deployment", False, None), ("chat", False, None), ("key", False, None)
    ]  # fmt: skip
    version = factories.make_version(team=team)
    factories.make_instance(
        factories.make_deployment(version=version), state=InstanceState.READY, ready_at=timezone.now()
    )
    factories.make_usage(team, status=500, user_id=member.pk)
    factories.make_usage(team, user_id=None)
    steps = {step["key"]: step["done"] for step in client.get("/api/v1/checklist").json()}
    assert steps == {"model": True, "deployment": True, "chat": False, "key": False}
    factories.make_usage(team, user_id=member.pk)
    factories.make_api_key(team)
    assert all(step["done"] and step["at"] for step in client.get("/api/v1/checklist").json())


def test_overview_of_an_empty_team(api, viewer):
    body = api(viewer).get("/api/v1/overview").json()
    assert body["deployments"] == {"total": 0, "ready": 0, "problems": []}
    assert body["instances"] == {"ready": 0, "total": 0}
    assert body["jobs"] == {"running": 0, "failed_24h": 0, "recent": [], "failed": []}
    assert body["traffic"]["ttft_ms"] == {"p50": None, "p95": None}
    assert len(body["traffic"]["series"]) in (61, 62)


def test_overview_counts_what_is_there(api, team, other_team, viewer):
    ready = factories.make_deployment(team)
    factories.make_instance(ready, state=InstanceState.READY)
    broken = factories.make_deployment(team)
    factories.make_instance(broken, state=InstanceState.FAILED, reason="out of memory")
    factories.make_instance(factories.make_deployment(other_team), state=InstanceState.READY)
    factories.make_job(team, state=JobState.RUNNING)
    failed = factories.make_job(team, state=JobState.ERRORED, finished_at=timezone.now())
    factories.make_job(team, state=JobState.ERRORED, finished_at=timezone.now() - timedelta(days=2))
    factories.make_job(other_team, state=JobState.RUNNING)
    node = factories.make_node()
    body = api(viewer).get("/api/v1/overview").json()
    assert (body["deployments"]["total"], body["deployments"]["ready"]) == (2, 1)
    (problem,) = body["deployments"]["problems"]
    assert (problem["name"], problem["state"]) == (broken.name, "failed")
    assert "out of memory" in problem["reason"]
    assert body["instances"] == {"ready": 1, "total": 2}
    assert (body["jobs"]["running"], body["jobs"]["failed_24h"], len(body["jobs"]["recent"])) == (1, 1, 3)
    assert [row["id"] for row in body["jobs"]["failed"]] == [str(failed.pk)]
    assert [row["name"] for row in body["nodes"]] == [node.name]


def test_overview_traffic(api, team, other_team, viewer):
    now = timezone.now()
    for minutes, status, ttft in ((1, 200, 100.0), (1, 200, 300.0), (5, 500, None), (5, 499, None), (90, 200, 9.0)):
        factories.make_usage(team, started_at=now - timedelta(minutes=minutes), status=status, ttft_ms=ttft)
    factories.make_usage(other_team)
    traffic = api(viewer).get("/api/v1/overview").json()["traffic"]
    assert (traffic["requests"], traffic["errors"]) == (4, 1)
    assert (traffic["prompt_tokens"], traffic["completion_tokens"]) == (40, 80)
    assert traffic["ttft_ms"] == {"p50": 100.0, "p95": 300.0}
    assert sum(point["requests"] for point in traffic["series"]) == 4
    assert sorted(point["requests"] for point in traffic["series"])[-2:] == [2, 2]


def test_overview_query_count_is_constant(api, team, viewer):
    client = api(viewer)

    def queries() -> int:
        for _ in range(2):
            factories.make_instance(factories.make_deployment(team))
            factories.make_job(team)
            factories.make_node()
            factories.make_usage(team)
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/api/v1/overview").status_code == 200
        return len(queries)

    assert queries() == queries()


@pytest.mark.parametrize("path", ["overview", "checklist", "plugins"])
def test_strangers_see_nothing(api, path):
    assert_error_shape(api(None).get(f"/api/v1/{path}"), 401)


def test_plugins_are_for_admins(api, member, admin):
    assert_error_shape(api(member).get("/api/v1/plugins"), 403)
    assert api(admin).get("/api/v1/plugins").status_code == 200


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([1.0], 0.95, 1.0), ([1.0, 2.0], 0.5, 1.0), ([float(n) for n in range(1, 101)], 0.95, 95.0)],
)
def test_percentile_is_a_value_that_was_seen(values, share, expected):
    assert percentile(values, share) == expected
