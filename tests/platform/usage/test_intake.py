"""From the gateways' stream into rows, each exactly once, on a real Redis and PostgreSQL."""

import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from redis import Redis
from tursiops.gateway import records
from tursiops.gateway.records import UsageEntry
from tursiops.usage import services
from tursiops.usage.models import UsageRecord

from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def redis():
    client = Redis.from_url(settings.REDIS_URL)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


def entry(of, **fields):
    defaults = {
        "request_id": uuid.uuid4().hex,
        "team": str(of.pk),
        "served_name": "m",
        "path": "/v1/chat/completions",
        "status": 200,
        "completion_tokens": 5,
        "started_at": 1764400000.5,
    }
    return UsageEntry(**(defaults | fields))


def put(redis, *entries):
    for made in entries:
        redis.xadd(records.STREAM, {records.FIELD: records.encode(made)})


def test_each_record_becomes_one_row_however_often_it_comes(redis, team):
    made = [entry(team) for _ in range(3)]
    put(redis, *made, made[0])
    assert services.take_in(redis=redis) == 3
    put(redis, *made)  # a gateway brings back its spill file
    assert services.take_in(redis=redis) == 0
    assert UsageRecord.objects.count() == 3
    assert redis.xlen(records.STREAM) == 0, "what is stored is taken from the stream"
    row = UsageRecord.objects.get(request_id=made[0].request_id)
    assert row.started_at == datetime(2025, 11, 29, 7, 6, 40, 500_000, tzinfo=UTC)
    assert (row.served_name, row.completion_tokens, row.team_id) == ("m", 5, team.pk)


def test_killed_before_the_acknowledgement_the_next_run_finishes(redis, team, monkeypatch):
    put(redis, *[entry(team) for _ in range(3)])

    def die(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(services, "_take_batch", die)
    with pytest.raises(KeyboardInterrupt):
        services.take_in(redis=redis)
    monkeypatch.undo()
    assert services.take_in(redis=redis) == 3
    assert UsageRecord.objects.count() == 3


def test_killed_after_the_commit_nothing_doubles(redis, team):
    made = [entry(team) for _ in range(3)]
    services._make_group(redis)
    put(redis, *made)
    services._new(redis)
    services.store(made)  # committed, and then the process died before XACK
    assert services.take_in(redis=redis) == 0
    assert UsageRecord.objects.count() == 3
    assert redis.xlen(records.STREAM) == 0


def test_records_that_no_row_can_hold_are_put_aside_and_stop_nothing(redis, team):
    redis.xadd(records.STREAM, {"json": b"{torn"})
    redis.xadd(records.STREAM, {"other": b"x"})
    put(redis, entry(team, prompt_tokens=-1), entry(team, team="no uuid"), entry(team, served_name="a\x00b"))
    assert services.take_in(redis=redis) == 1
    assert UsageRecord.objects.get().served_name == "ab"
    assert redis.xlen(services.DEAD_STREAM) == 4
    assert redis.xlen(records.STREAM) == 0


def test_records_of_a_deleted_team_are_let_go(redis, team, other_team):
    gone = entry(other_team)
    other_team.delete()
    put(redis, gone, entry(team))
    assert services.take_in(redis=redis) == 1
    assert redis.xlen(records.STREAM) == 0


def test_key_remembers_its_last_use_but_not_each(redis, team, django_assert_max_num_queries):
    key = factories.make_api_key(team)
    now = time.time()
    put(redis, *[entry(team, api_key_id=str(key.pk), started_at=now - age) for age in (90, 30, 60)])
    services.take_in(redis=redis)
    key.refresh_from_db()
    assert abs(key.last_used_at.timestamp() - (now - 30)) < 0.01
    put(redis, entry(team, api_key_id=str(key.pk), started_at=now))
    services.take_in(redis=redis)
    before = key.last_used_at
    key.refresh_from_db()
    assert key.last_used_at == before, "within a minute it is not worth a write"


def test_a_large_batch_takes_few_queries(redis, team, django_assert_max_num_queries):
    put(redis, *[entry(team) for _ in range(300)])
    with django_assert_max_num_queries(8):
        assert services.take_in(redis=redis) == 300


def test_redis_away_is_no_error(team, tmp_path):
    away = Redis.from_url(f"unix://{tmp_path}/no.sock", retry=None)
    assert services.take_in(redis=away) == 0


def test_sums_by_key_deployment_and_day(api, team, other_team, viewer, django_assert_max_num_queries):
    key = factories.make_api_key(team, name="shop")
    day = datetime(2026, 3, 1, 12, tzinfo=UTC)
    deployment = uuid.uuid4()
    factories.make_usage(team, api_key_id=key.pk, started_at=day, deployment_id=deployment)
    factories.make_usage(team, api_key_id=key.pk, started_at=day, deployment_id=deployment, status=502)
    factories.make_usage(team, user_id=viewer.pk, started_at=day + timedelta(days=1), status=499, cached_tokens=4)
    factories.make_usage(other_team, started_at=day)
    client = api(viewer)
    body = client.get("/api/v1/usage", {"group": "day"}).json()
    assert [(row["label"], row["requests"], row["errors"]) for row in body["rows"]] == [
        ("2026-03-01", 2, 1),
        ("2026-03-02", 1, 0),
    ]
    assert body["totals"] == {
        "requests": 3,
        "errors": 1,
        "rejected": 0,
        "failed": 1,
        "prompt_tokens": 30,
        "cached_tokens": 4,
        "completion_tokens": 60,
    }
    labels = {row["label"]: row["requests"] for row in client.get("/api/v1/usage", {"group": "key"}).json()["rows"]}
    assert labels == {"shop": 2, f"playground: {viewer.username}": 1}
    rows = client.get("/api/v1/usage", {"group": "deployment", "until": "2026-03-02T00:00:00Z"}).json()["rows"]
    assert [(row["group"], row["label"], row["requests"]) for row in rows] == [(str(deployment), "smollm2", 2)]


def test_a_clients_mistake_is_no_failure_of_the_service(api, team, viewer):
    rejected, failed, neither = (400, 401, 404, 413, 422, 429), (500, 502, 503, 504), (200, 499)
    for status in (*rejected, *failed, *neither):
        factories.make_usage(team, status=status, user_id=viewer.pk, deployment_id=team.pk)
    expected = {"requests": 12, "errors": 10, "rejected": 6, "failed": 4}
    client = api(viewer)
    for group in ("day", "key", "deployment"):
        body = client.get("/api/v1/usage", {"group": group}).json()
        for numbers in (body["totals"], *body["rows"]):
            assert {name: numbers[name] for name in expected} == expected, group
    traffic = client.get("/api/v1/overview").json()["traffic"]
    assert {name: traffic[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"group": "moon"}, "group"),
        ({"since": "x"}, "since"),
        ({"since": "2026-02-01", "until": "2026-01-01"}, "until"),
    ],
)
def test_bad_queries_name_the_field(api, viewer, query, field):
    response = api(viewer).get("/api/v1/usage", query)
    assert response.status_code == 400
    assert field in response.json()["error"]["fields"]


def test_usage_of_strangers(api, team):
    factories.make_usage(team)
    assert api(None).get("/api/v1/usage").status_code == 401
