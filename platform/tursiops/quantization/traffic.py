"""A team's kept prompts (tursiops.gateway.traffic) as calibration data: counted, made a corpus of, erased."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from tursiops import secrets
from tursiops.accounts.models import ApiKey, Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict
from tursiops.fleet import wake
from tursiops.gateway import traffic
from tursiops.registry import corpora
from tursiops.registry.models import Corpus


@dataclass(frozen=True)
class Kept:
    """rows: of keys that are live and consent still. keys: such keys of the team."""

    rows: list[dict[str, Any]]
    keys: int

    @property
    def size(self) -> int:
        """Bytes of their text."""
        return sum(len(json.dumps(row, ensure_ascii=False).encode()) for row in self.rows)


def kept(team: Team) -> Kept:
    """Newest first. Rows of keys that were revoked are left out: that is how consent is withdrawn."""
    live = ApiKey.objects.filter(team=team, revoked_at=None, traffic_consent=True)
    keys = {str(key) for key in live.values_list("pk", flat=True)}
    sealed: Any = wake.client().lrange(traffic.key_of(str(team.pk)), 0, -1) if keys else []
    found = [told for each in sealed if (told := _opened(each)) is not None]
    return Kept([told["row"] for told in found if told["key"] in keys], len(keys))


def _opened(sealed: Any) -> dict[str, Any] | None:
    """None for one that was sealed with a secret that has been replaced."""
    try:
        told: dict[str, Any] = json.loads(secrets.decrypt(traffic.LABEL, bytes(sealed)))
    except secrets.SecretError:
        return None
    return told


def as_corpus(team: Team, actor: Actor) -> Corpus:
    """What is kept now, as a corpus of its own: a job's data must not change under it. Raises Conflict for nothing."""
    found = kept(team)
    if not found.rows:
        raise Conflict(
            "No traffic of this team is kept.",
            code="no_traffic",
            hint="Make an API key that consents to it, and send requests with that key first.",
        )
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows).encode()
    name = f"Gateway traffic {timezone.now():%Y-%m-%d %H:%M}"
    return corpora.add_corpus(team=team, actor=actor, name=name, file=io.BytesIO(data), size=len(data))


def erase(team: Team, actor: Actor) -> int:
    """Forget what is kept; corpora that were made of it are deleted as such. Rows that went."""
    key = traffic.key_of(str(team.pk))
    count = int(wake.client().llen(key))
    wake.client().delete(key)
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
