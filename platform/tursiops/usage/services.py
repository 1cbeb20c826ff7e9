"""Usage records: from the gateways' stream into rows, each exactly once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from tursiops.accounts.models import ApiKey, Team
from tursiops.gateway import records
from tursiops.gateway.records import UsageEntry
from tursiops.usage.models import UsageRecord

log = structlog.get_logger(__name__)

GROUP = "usage"
CONSUMER = "controller"
DEAD_STREAM = "tursiops:usage:dead"  # records that can't be stored, kept for people to look at
_DEAD_LIMIT = 10_000
_BATCH = 500
_CLAIM_IDLE_MS = 60_000
_SEEN_EVERY = timedelta(minutes=1)  # how exact ApiKey.last_used_at is


@cache
def _redis() -> Redis:
    return Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=5)


def take_in(*, seconds: float = 3.0, redis: Redis | None = None) -> int:
    """Store what lies in the stream, for at most about `seconds`; returns how many records were new.

    Safe to be killed anywhere and to run twice at once: a record is acknowledged after its row is committed, and
    a row that is there already is left as it is. While Redis is away nothing is lost: gateways keep records on disk.
    """
    redis = redis or _redis()
    end = time.monotonic() + seconds
    stored = 0
    try:
        _make_group(redis)
        for fetch in (_abandoned, _own, _new):  # first what an earlier run left unfinished
            while batch := fetch(redis):
                stored += _take_batch(redis, batch)
                if time.monotonic() > end:
                    return stored
    except (RedisError, OSError) as error:
        log.warning("usage.stream_away", error=str(error))
    return stored


Batch = list[tuple[bytes, dict[bytes, bytes]]]


def _make_group(redis: Redis) -> None:
    try:
        redis.xgroup_create(records.STREAM, GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def _abandoned(redis: Redis) -> Batch:
    """Records that another consumer took and did not finish."""
    answer: Any = redis.xautoclaim(records.STREAM, GROUP, CONSUMER, _CLAIM_IDLE_MS, "0-0", count=_BATCH)
    return [(entry_id, fields) for entry_id, fields in answer[1] if fields]


def _own(redis: Redis) -> Batch:
    return _read(redis, "0")


def _new(redis: Redis) -> Batch:
    return _read(redis, ">")


def _read(redis: Redis, since: str) -> Batch:
    answer: Any = redis.xreadgroup(GROUP, CONSUMER, {records.STREAM: since}, count=_BATCH)
    return list(answer[0][1]) if answer else []


def _take_batch(redis: Redis, batch: Batch) -> int:
    entries, dead = [], []
    for _, fields in batch:
        data = fields.get(records.FIELD, b"")
        try:
            entries.append(records.decode(data))
        except msgspec.DecodeError as error:
            dead.append((data, str(error)))
    stored, refused = store(entries)
    dead += [(records.encode(entry), why) for entry, why in refused]
    with redis.pipeline(transaction=True) as pipe:
        for data, why in dead:
            log.error("usage.record_refused", error=why)
            pipe.xadd(DEAD_STREAM, {"json": data, "error": why}, maxlen=_DEAD_LIMIT, approximate=True)
        ids = [entry_id for entry_id, _ in batch]
        pipe.xack(records.STREAM, GROUP, *ids)
        pipe.xdel(records.STREAM, *ids)
        pipe.execute()
    return stored


def store(entries: Iterable[UsageEntry]) -> tuple[int, list[tuple[UsageEntry, str]]]:
    """Insert records that are not there yet; returns how many, and those that can't be stored with the reason."""
    rows: dict[str, UsageRecord] = {}
    refused: list[tuple[UsageEntry, str]] = []
    for entry in entries:
        try:
            rows.setdefault(entry.request_id, _row(entry))
        except ValueError as error:
            refused.append((entry, str(error)))
    with transaction.atomic():
        # Locked: a team that is deleted meanwhile would make the whole batch fail at commit.
        locked = Team.objects.select_for_update(no_key=True).filter(pk__in={row.team_id for row in rows.values()})
        teams = set(locked.values_list("pk", flat=True))
        known = [row for row in rows.values() if row.team_id in teams]
        known_before = UsageRecord.objects.filter(request_id__in=[row.request_id for row in known])
        existing = set(known_before.values_list("request_id", flat=True))
        fresh = [row for row in known if row.request_id not in existing]
        UsageRecord.objects.bulk_create(fresh, ignore_conflicts=True)
        _mark_keys(fresh)
    gone = len(rows) - len(known)
    if gone:
        log.warning("usage.team_gone", records=gone)
    return len(fresh), refused


def _row(entry: UsageEntry) -> UsageRecord:
    """Raises ValueError for ids or numbers that no row can hold."""
    numbers = (entry.status, entry.prompt_tokens, entry.cached_tokens, entry.completion_tokens, entry.retries)
    if any(not 0 <= number < 2**31 for number in numbers):
        raise ValueError(f"a count is out of range: {numbers}")
    return UsageRecord(
        team_id=uuid.UUID(entry.team),
        request_id=_text(entry.request_id, 64),
        api_key_id=_uuid(entry.api_key_id),
        user_id=_uuid(entry.user_id),
        deployment_id=_uuid(entry.deployment_id),
        instance_id=_uuid(entry.instance_id),
        served_name=_text(entry.served_name, 100),
        path=_text(entry.path, 50),
        status=entry.status,
        finish_reason=_text(entry.finish_reason, 16),
        error_code=_text(entry.error_code, 64),
        prompt_tokens=entry.prompt_tokens,
        cached_tokens=entry.cached_tokens,
        completion_tokens=entry.completion_tokens,
        started_at=datetime.fromtimestamp(entry.started_at, UTC),
        queue_ms=entry.queue_ms,
        ttft_ms=entry.ttft_ms,
        duration_ms=entry.duration_ms,
        retries=entry.retries,
        disconnected=entry.disconnected,
    )


def _uuid(text: str | None) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


def _text(text: str, length: int) -> str:
    return text.replace("\x00", "")[:length]  # PostgreSQL stores no NUL


def _mark_keys(rows: list[UsageRecord]) -> None:
    """Set `last_used_at` of the keys used, not more often than is worth a write."""
    latest: dict[uuid.UUID, datetime] = {}
    for row in rows:
        if row.api_key_id is not None:
            latest[row.api_key_id] = max(row.started_at, latest.get(row.api_key_id, row.started_at))
    for key_id, at in latest.items():
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=at - _SEEN_EVERY)
        ApiKey.objects.filter(stale, pk=key_id).update(last_used_at=at)
