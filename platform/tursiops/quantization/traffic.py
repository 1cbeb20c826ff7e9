"""A team's kept prompts (tursiops.gateway.traffic) as calibration data: counted, made a corpus of, erased."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from redis.exceptions import RedisError

from tursiops import secrets
from tursiops.accounts.models import ApiKey, Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, Unavailable
from tursiops.fleet import wake
from tursiops.gateway import traffic
from tursiops.registry import corpora
from tursiops.registry.models import Corpus

SAMPLE = 256  # rows that are read to count the rest
SLICES = 16  # that they come in: after a change of keys, the newest rows alone would tell nothing of the older ones


@dataclass(frozen=True)
class Kept:
    """rows: of keys that are live and consent still. size: bytes of their text. keys: such keys of the team."""

    rows: int
    size: int
    keys: int


def kept(team: Team) -> Kept:
    """How much it is. Of more than SAMPLE rows an estimate: every plan asks, and all may be hundreds of megabytes to
    decrypt. Raises Unavailable."""
    keys = _consenting(team)
    if not keys:
        return Kept(0, 0, 0)
    name = traffic.key_of(str(team.pk))
    with _redis() as client:
        total, each = int(client.llen(name)), SAMPLE // SLICES
        if total <= SAMPLE:
            sealed = client.lrange(name, 0, SAMPLE - 1)
        else:
            starts = [total * index // SLICES for index in range(SLICES)]
            sealed = [row for start in starts for row in client.lrange(name, start, start + each - 1)]
    found = _usable(sealed, keys)
    scale = max(1.0, total / max(1, len(sealed)))
    size = sum(len(json.dumps(row, ensure_ascii=False).encode()) for row in found)
    return Kept(round(len(found) * scale), round(size * scale), len(keys))


def kept_rows(team: Team) -> list[dict[str, Any]]:
    """All of them, the newest first. Raises Unavailable."""
    keys = _consenting(team)
    if not keys:
        return []
    with _redis() as client:
        sealed = client.lrange(traffic.key_of(str(team.pk)), 0, -1)
    return _usable(sealed, keys)


def _consenting(team: Team) -> set[str]:
    """Without those that were revoked: that is how consent is withdrawn."""
    live = ApiKey.objects.filter(team=team, revoked_at=None, traffic_consent=True)
    return {str(key) for key in live.values_list("pk", flat=True)}


@contextmanager
def _redis() -> Iterator[Any]:
    try:
        yield wake.client()
    except (RedisError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise Unavailable(
            f"Kept traffic can't be reached: {reason}",
            code="traffic_unavailable",
            hint="See that the broker runs; or take a corpus as calibration data.",
            fields={"calibration.source": [f"Kept traffic can't be reached: {reason}"]},
        ) from error


def _usable(sealed: list[Any], keys: set[str]) -> list[dict[str, Any]]:
    """Of consenting keys, and not older than was promised: the gateway erases such rows, but not at once."""
    since = time.time() - traffic.LIFETIME_S
    found = [told for each in sealed if (told := _opened(each)) is not None]
    return [told["row"] for told in found if told["key"] in keys and told["at"] >= since]


def _opened(sealed: Any) -> dict[str, Any] | None:
    """None for one that was sealed with a secret that has been replaced."""
    try:
        told: dict[str, Any] = json.loads(secrets.decrypt(traffic.LABEL, bytes(sealed)))
    except secrets.SecretError:
        return None
    return told


def as_corpus(team: Team, actor: Actor) -> Corpus:
    """What is kept now, as a corpus of its own: a job's data must not change under it. Raises Conflict for nothing."""
    found = kept_rows(team)
    if not found:
        raise Conflict(
            "No traffic of this team is kept.",
            code="no_traffic",
            hint="Make an API key that consents to it, and send requests with that key first.",
        )
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()
    name = f"Gateway traffic {timezone.now():%Y-%m-%d %H:%M}"
    return corpora.add_corpus(team=team, actor=actor, name=name, file=io.BytesIO(data), size=len(data))


def erase(team: Team, actor: Actor) -> int:
    """Forget what is kept; corpora that were made of it are deleted as such. Rows that went."""
    key = traffic.key_of(str(team.pk))
    with _redis() as client:
        count = int(client.llen(key))
        client.delete(key)
    record_change(
        team=team,
        actor=actor,
        kind="traffic.erased",
        subject_type="team",
        subject_id=team.pk,
        text=f"{count} kept requests were erased",
        payload={"id": str(team.pk), "rows": count},
    )
    return count
