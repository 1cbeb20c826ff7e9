"""What a gateway knows: keys and routes, as the controller publishes them. The codec both sides share.

A snapshot is a value: made once, never changed, swapped whole. On the wire it is JSON encrypted with the key
`snapshot`, because it holds the bearer tokens of engine instances.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from tursiops import secrets

FORMAT = 1
REDIS_KEY = "tursiops:snapshot"
REDIS_CHANNEL = "tursiops:snapshot"
FILE_NAME = "gateway-snapshot"


class SnapshotError(Exception):
    """Bytes that are not a snapshot this release reads; says which part and why."""


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An API key that is valid now. Limits are per minute; None: no limit."""

    id: str
    team: str
    name: str = ""
    models: tuple[str, ...] = ()  # served names; empty: all of the team
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    consents: bool = False  # to prompts being kept: gateway.traffic
    expires_at: float | None = None  # unix seconds


class InstanceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An engine process that answers: `ready`, or `draining` (takes no new request)."""

    id: str
    url: str  # http://host:port
    token: str
    epoch: int = 0
    state: str = "ready"
    role: str = "unified"
    weight: float = 1.0


class RouteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One served name of one team."""

    team: str
    name: str
    deployment: str
    created: int = 0  # unix seconds
    desired: str = "running"
    context_length: int = 0  # tokens; 0: unknown
    reason: str = ""  # why nothing is ready, one sentence
    fallback: str | None = None
    instances: tuple[InstanceEntry, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    v: int = FORMAT
    version: int = 0  # rises with each change of content
    generated_at: float = 0.0  # unix seconds of the controller's clock; tells staleness
    keys: dict[str, KeyEntry] = {}  # by SHA-256 hex of the secret
    routes: tuple[RouteEntry, ...] = ()

    @cached_property
    def by_name(self) -> dict[tuple[str, str], RouteEntry]:
        """(team, served name) → route."""
        return {(route.team, route.name): route for route in self.routes}

    @cached_property
    def by_deployment(self) -> dict[str, RouteEntry]:
        return {route.deployment: route for route in self.routes}

    @cached_property
    def by_team(self) -> dict[str, tuple[RouteEntry, ...]]:
        teams: dict[str, list[RouteEntry]] = {}
        for route in self.routes:
            teams.setdefault(route.team, []).append(route)
        return {team: tuple(sorted(routes, key=lambda route: route.name)) for team, routes in teams.items()}

    @cached_property
    def instance_ids(self) -> frozenset[str]:
        return frozenset(instance.id for route in self.routes for instance in route.instances)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Snapshot)


def fingerprint(snapshot: Snapshot) -> str:
    """Digest of the content without version and time: equal → the publisher keeps the same `version`."""
    ordered = msgspec.json.encode(
        {"keys": snapshot.keys, "routes": sorted(snapshot.routes, key=lambda route: (route.team, route.name))},
        order="deterministic",
    )
    return hashlib.sha256(ordered).hexdigest()


def encode(snapshot: Snapshot) -> bytes:
    """The JSON of contracts.md §3."""
    return _encoder.encode(snapshot)


def decode(data: bytes) -> Snapshot:
    """Raises SnapshotError. Fields that this release does not know are left out."""
    try:
        snapshot = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"gateway snapshot: {error}") from None
    if snapshot.v != FORMAT:
        raise SnapshotError(f"gateway snapshot has format {snapshot.v}; this release reads {FORMAT}")
    return snapshot


def seal(snapshot: Snapshot) -> bytes:
    """Encoded and encrypted, as it lies in Redis and in the file."""
    return secrets.encrypt("snapshot", encode(snapshot))


def unseal(data: bytes) -> Snapshot:
    """Raises SnapshotError."""
    try:
        return decode(secrets.decrypt("snapshot", data))
    except secrets.SecretError as error:
        raise SnapshotError(str(error)) from None
