"""Publishes what gateways route by: keys and routes, to Redis, encrypted. Equal content keeps its version."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import structlog
from django.db.models import Q
from django.utils import timezone

from tursiops.accounts.models import ApiKey
from tursiops.deployments.derive import derive
from tursiops.deployments.models import Deployment, Desired, Instance, InstanceState
from tursiops.fleet import wake
from tursiops.gateway import snapshot
from tursiops.gateway.snapshot import InstanceEntry, KeyEntry, RouteEntry, Snapshot, SnapshotError
from tursiops.secrets import SecretError, open_instance_token

log = structlog.get_logger(__name__)

REFRESH_S = 5.0


class Publisher:
    """Memory of what was published last; a new leader goes on from what lies in Redis."""

    def __init__(self) -> None:
        self._fingerprint = ""
        self._version = 0
        self._published_at = float("-inf")  # monotonic

    def publish(self, deployments: list[Deployment], *, trusted_nodes: frozenset[str] = frozenset()) -> bool:
        """Publish if the content changed or 5 s have passed. True if it did. Raises redis.RedisError.

        `deployments`: as selectors.live_deployments() gives them. `trusted_nodes`: see `build`.
        """
        fresh = build(deployments, now=timezone.now(), trusted_nodes=trusted_nodes)
        content = snapshot.fingerprint(fresh)
        if content == self._fingerprint and time.monotonic() - self._published_at < REFRESH_S:
            return False
        if not self._fingerprint:
            self._resume()
        if content != self._fingerprint:
            # Time as a floor: the version rises even where Redis has lost the last one.
            self._version = max(self._version + 1, int(time.time()))
        sealed = snapshot.seal(
            Snapshot(version=self._version, generated_at=time.time(), keys=fresh.keys, routes=fresh.routes)
        )
        wake.client().set(snapshot.REDIS_KEY, sealed)
        wake.client().publish(snapshot.REDIS_CHANNEL, str(self._version))
        self._fingerprint, self._published_at = content, time.monotonic()
        return True

    def _resume(self) -> None:
        sealed: Any = wake.client().get(snapshot.REDIS_KEY)
        if not sealed:
            return
        try:
            last = snapshot.unseal(sealed)
        except SnapshotError as error:
            log.warning("snapshot.replaced", error=str(error))
            return
        self._version, self._fingerprint = last.version, snapshot.fingerprint(last)


def build(deployments: list[Deployment], *, now: datetime, trusted_nodes: frozenset[str] = frozenset()) -> Snapshot:
    """What is true now. Unreachable instances on `trusted_nodes` stay in the routes: it is only our own view that
    lost them (evictions are frozen), and gateways try another instance before the first byte anyway."""
    shown = [deployment for deployment in deployments if deployment.desired != Desired.DELETED]
    return Snapshot(
        keys={key.sha256: _key(key) for key in _live_keys(now)},
        routes=tuple(_route(deployment, trusted_nodes) for deployment in shown),
    )


def _live_keys(now: datetime) -> Any:
    live = Q(expires_at=None) | Q(expires_at__gt=now)
    return ApiKey.objects.filter(live, revoked_at=None, created_by__is_active=True)


def _key(key: ApiKey) -> KeyEntry:
    return KeyEntry(
        id=str(key.pk),
        team=str(key.team_id),
        name=key.name,
        models=tuple(key.allowed_models),
        rpm=key.requests_per_minute,
        tpm=key.tokens_per_minute,
        parallel=key.max_parallel,
        consents=key.traffic_consent,
        expires_at=key.expires_at.timestamp() if key.expires_at else None,
    )


def _route(deployment: Deployment, trusted_nodes: frozenset[str]) -> RouteEntry:
    rows = list(deployment.instances.all())
    entries = [entry for row in rows if (entry := _instance(row, trusted_nodes)) is not None]
    derived = derive(
        desired=deployment.desired, replicas=deployment.replicas, current_id=deployment.current_id, instances=rows
    )
    serving = any(entry.state == "ready" for entry in entries)
    return RouteEntry(
        team=str(deployment.team_id),
        name=deployment.name,
        deployment=str(deployment.pk),
        created=int(deployment.created_at.timestamp()),
        desired=deployment.desired,
        context_length=_context_length(deployment, rows),
        reason="" if serving else derived.reason,
        instances=tuple(sorted(entries, key=lambda entry: entry.id)),
    )


def _instance(row: Instance, trusted_nodes: frozenset[str]) -> InstanceEntry | None:
    trusted = row.state == InstanceState.UNREACHABLE and row.node is not None and row.node.name in trusted_nodes
    if row.state not in (InstanceState.READY, InstanceState.DRAINING) and not trusted:
        return None
    if not row.port or not row.token_encrypted:
        return None
    try:
        token = open_instance_token(row.token_encrypted)
    except SecretError as error:
        log.error("snapshot.instance_left_out", instance=str(row.pk), error=str(error))
        return None
    ends = row.state == InstanceState.DRAINING or row.desired != Desired.RUNNING
    return InstanceEntry(
        id=str(row.pk),
        url=f"http://{row.address or '127.0.0.1'}:{row.port}",
        token=token,
        epoch=row.epoch,
        state="draining" if ends else "ready",
        role=row.role,
    )


def _context_length(deployment: Deployment, rows: list[Instance]) -> int:
    """Tokens: as the engine found it, else as asked for, else the model's own."""
    told = [int(row.facts["max_model_len"]) for row in rows if row.facts.get("max_model_len")]
    if told:
        return min(told)
    revision = deployment.current
    if revision is None:
        return 0
    return revision.max_model_len or int(revision.version.shape.get("context_length", 0))
