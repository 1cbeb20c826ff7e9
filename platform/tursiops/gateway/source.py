"""Where the current snapshot comes from: Redis where it answers, else the file of the last one seen."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tursiops.gateway import metrics, snapshot
from tursiops.gateway.config import Config
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.snapshot import Snapshot, SnapshotError

log = structlog.get_logger()
_REDIS_TIMEOUT_S = 5.0


class SnapshotSource:
    """Owns `current`. Requests read it once and keep what they read: a swap never changes a running request."""

    def __init__(self, config: Config, redis: Redis) -> None:
        self.current: Snapshot | None = None
        self._config = config
        self._redis = redis
        self._path = config.run_dir / snapshot.FILE_NAME
        self._sealed = b""
        self._warned_at = 0.0

    def age(self) -> float:
        """Seconds since the controller made the current snapshot; infinite where there is none."""
        return max(0.0, time.time() - self.current.generated_at) if self.current else float("inf")

    def require(self) -> Snapshot:
        """The snapshot to serve a request from. Raises GatewayError (503) where there is none to trust."""
        if self.current is None:
            raise GatewayError(
                503,
                "no_configuration",
                "The gateway has no configuration yet; the controller publishes it within seconds of its start.",
                retry_after=2,
            )
        if self.age() > self._config.snapshot_max_age:
            raise GatewayError(
                503,
                "stale_configuration",
                f"The gateway's configuration is {self.age() / 3600:.0f} h old, so keys revoked since are unknown. "
                "Start the controller and its database.",
                retry_after=30,
            )
        return self.current

    def load_file(self) -> None:
        """Start from the file copy, where there is one. A broken file is reported and left for Redis to replace."""
        try:
            sealed = self._path.read_bytes()
        except FileNotFoundError:
            return
        try:
            self._swap(sealed, snapshot.unseal(sealed))
            log.info("gateway.snapshot_from_file", version=self.current and self.current.version, age_s=self.age())
        except SnapshotError as error:
            log.error("gateway.snapshot_file_refused", path=str(self._path), error=str(error))

    async def watch(self) -> None:
        """Follow Redis until cancelled: at each notice on the channel, and every `snapshot_poll` seconds."""
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(snapshot.REDIS_CHANNEL)
                    while True:
                        await self.refresh()
                        await channel.get_message(ignore_subscribe_messages=True, timeout=self._config.snapshot_poll)
            except (RedisError, OSError) as error:
                self._observe_age(error)
                await asyncio.sleep(min(1.0, self._config.snapshot_poll))

    async def refresh(self) -> None:
        """Take what Redis holds now, if it is newer. Raises RedisError or OSError while Redis is away."""
        async with asyncio.timeout(_REDIS_TIMEOUT_S):
            sealed = await self._redis.get(snapshot.REDIS_KEY)
        if isinstance(sealed, bytes) and sealed != self._sealed:
            try:
                fresh = snapshot.unseal(sealed)
            except SnapshotError as error:
                log.error("gateway.snapshot_refused", error=str(error))
            else:
                if self.current is None or fresh.generated_at >= self.current.generated_at:
                    self._swap(sealed, fresh)
                    self._keep(sealed)
        self._observe_age(None)

    def _swap(self, sealed: bytes, fresh: Snapshot) -> None:
        if self.current is None or fresh.version != self.current.version:
            log.info("gateway.snapshot", version=fresh.version, keys=len(fresh.keys), routes=len(fresh.routes))
        self.current, self._sealed = fresh, sealed
        metrics.snapshot_version.set(fresh.version)

    def _keep(self, sealed: bytes) -> None:
        try:
            _replace(self._path, sealed)
        except OSError as error:  # a full disk must not stop the serving
            log.error("gateway.snapshot_not_kept", path=str(self._path), error=str(error))

    def _observe_age(self, error: Exception | None) -> None:
        age = self.age()
        metrics.snapshot_age.set(age)
        now = time.monotonic()
        if self.current is not None and age > self._config.snapshot_warn_age and now - self._warned_at > 60:
            self._warned_at = now
            log.warning("gateway.snapshot_stale", age_s=round(age, 1), redis=str(error) if error else "answers")


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(part, path)
