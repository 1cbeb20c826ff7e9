"""Kept prompts as calibration data: of consenting keys alone, made a corpus of, erased on demand."""

from __future__ import annotations

import json
import time

import pytest
import redis
from django.utils import timezone
from redis.backoff import NoBackoff
from redis.retry import Retry
from tursiops import secrets
from tursiops.accounts.models import ApiKey, AuditEntry
from tursiops.core import store
from tursiops.core.errors import TursiopsError
from tursiops.fleet import wake
from tursiops.gateway import traffic as gateway
from tursiops.quantization import services
from tursiops.quantization import traffic as kept_traffic
from tursiops.quantization.models import Quantization

from tests import factories
from tests.platform.quantization.conftest import ALICE, asked, choice

pytestmark = pytest.mark.django_db
ROW = {"messages": [{"role": "user", "content": "What does REIT mean? " * 20}]}


@pytest.fixture
def key(team):
    key = factories.make_api_key(team, traffic_consent=True)
    yield key
    wake.client().delete(gateway.key_of(str(team.pk)))


def keep(team, key, count: int = 1, days: float = 0) -> None:
    for _ in range(count):
        told = json.dumps({"key": str(key.pk), "at": time.time() - days * 86400, "row": ROW}).encode()
        wake.client().lpush(gateway.key_of(str(team.pk)), secrets.encrypt(gateway.LABEL, told))


def test_rows_of_revoked_and_unconsenting_keys_are_left_out(team, key):
    keep(team, key, 3)
    keep(team, factories.make_api_key(team))
    assert (kept_traffic.kept(team).rows, kept_traffic.kept(team).keys) == (3, 1)
    assert kept_traffic.kept_rows(team) == [ROW] * 3
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    assert kept_traffic.kept_rows(team) == []
    assert kept_traffic.kept(team).rows == 0
    factories.make_api_key(team, traffic_consent=True)  # another's consent gives back nothing
    assert kept_traffic.kept_rows(team) == []
    assert kept_traffic.kept(team).rows == 0


def test_rows_older_than_30_days_are_left_out_before_they_are_erased(team, key):
    keep(team, key, 2, days=30.1)
    keep(team, key, 1, days=29.9)
    assert kept_traffic.kept_rows(team) == [ROW]
    assert kept_traffic.kept(team).rows == 1


def test_counts_are_of_a_part_of_the_rows_and_scaled(team, key, monkeypatch):
    monkeypatch.setattr(kept_traffic, "SAMPLE", 4)
    monkeypatch.setattr(kept_traffic, "SLICES", 4)
    keep(team, key, 6)
    keep(team, factories.make_api_key(team), 6)
    opened = []
    monkeypatch.setattr(
        kept_traffic, "_opened", lambda sealed, real=kept_traffic._opened: opened.append(1) or real(sealed)
    )
    size = len(json.dumps(ROW).encode())
    assert kept_traffic.kept(team) == kept_traffic.Kept(rows=6, size=6 * size, keys=1)
    assert len(opened) == 4


def test_a_broker_that_is_away_is_told_by_the_field(team, key, monkeypatch):
    away = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr(kept_traffic.wake, "client", lambda: away)
    for ask in (kept_traffic.kept, kept_traffic.kept_rows, lambda team: kept_traffic.erase(team, ALICE)):
        with pytest.raises(TursiopsError, match="can't be reached") as refused:
            ask(team)
        assert "calibration.source" in refused.value.fields
    monkeypatch.undo()


def test_rows_sealed_with_another_secret_are_left_out(team, key):
    keep(team, key)
    wake.client().lpush(gateway.key_of(str(team.pk)), b"gAAAAA-of-another")
    assert len(kept_traffic.kept_rows(team)) == 1


def test_a_job_s_calibration_is_what_was_kept_when_it_was_asked_for(team, key, store_dir):
    keep(team, key, 100)
    base = factories.make_version(team=team)
    wanted = asked(choice("w4a16_awq"), source="gateway", samples=32, tokens=64)
    (row,) = services.quantize(base=base, actor=ALICE, asked=wanted)
    calibration = Quantization.objects.get(pk=row.pk).calibration
    assert calibration["source"] == "gateway"
    assert row.job.spec["corpus"] == calibration["corpus"]
    corpus = kept_traffic.Corpus.objects.get(pk=calibration["corpus"])
    assert corpus.lines == 100
    with store.open_blob(corpus.blob_id) as file:
        assert json.loads(file.readline()) == ROW


def test_too_little_traffic_is_refused_with_numbers(team, key):
    keep(team, key)
    base = factories.make_version(team=team)
    with pytest.raises(TursiopsError, match="kept traffic of 1 consenting keys") as refused:
        services.quantize(base=base, actor=ALICE, asked=asked(choice("w4a16_awq"), source="gateway"))
    assert "calibration.source" in refused.value.fields
    assert not kept_traffic.Corpus.objects.exists()


def test_it_is_counted_and_erased_by_members_with_an_audit(api, team, key, other_team):
    keep(team, key, 2)
    url = "/api/v1/quantization/traffic"
    viewer, member = (api(factories.make_user(team, role)) for role in ("viewer", "member"))
    told = viewer.get(url).json()
    assert (told["rows"], told["keys"]) == (2, 1)
    assert told["bytes"] > 800
    assert api(factories.make_user(other_team, "admin")).get(url).json()["rows"] == 0
    assert viewer.delete(url).status_code == 403
    assert member.delete(url).status_code == 204
    assert viewer.get(url).json()["rows"] == 0
    assert AuditEntry.objects.get(action="traffic.erased").team == team


def test_consent_is_given_when_a_key_is_made(api, member):
    plain = api(member).post("/api/v1/keys", {"name": "a"}).json()
    consenting = api(member).post("/api/v1/keys", {"name": "b", "traffic_consent": True}).json()
    assert (plain["traffic_consent"], consenting["traffic_consent"]) == (False, True)
