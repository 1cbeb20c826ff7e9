"""Messages that wake a sleeping loop. They carry nothing and may be lost: each loop looks by itself every 5 s."""

from __future__ import annotations

import functools
import time

import redis
import structlog
from django.conf import settings
from django.db import transaction

log = structlog.get_logger(__name__)

CONTROLLER = "controller"


def node_channel(name: str) -> str:
    return f"node:{name}"


@functools.lru_cache(maxsize=1)
def client() -> redis.Redis:
    """Shared by the threads of a process; connects on first use."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=5)


def wake(who: str) -> None:
    """Wake `who` once the current transaction has committed, so that it sees the change."""
    transaction.on_commit(lambda: _publish(who))


def _publish(who: str) -> None:
    try:
        client().publish(f"tursiops:wake:{who}", b"")
    except redis.RedisError as error:
        log.debug("wake.lost", who=who, error=str(error))


class Waker:
    """The sleeper's side. Survives a broker that comes and goes."""

    def __init__(self, who: str) -> None:
        self._channel = f"tursiops:wake:{who}"
        self._subscription: redis.client.PubSub | None = None

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until woken. True if woken. Messages that came together count as one."""
        started = time.monotonic()
        try:
            subscription = self._subscribe()
            message = subscription.get_message(ignore_subscribe_messages=True, timeout=max(seconds, 0.01))
            woken = message is not None
            while message is not None:
                message = subscription.get_message(ignore_subscribe_messages=True, timeout=0)
        except (redis.RedisError, OSError):
            self.close()
            time.sleep(max(0.0, min(seconds, 1.0) - (time.monotonic() - started)))
            return False
        return woken

    def _subscribe(self) -> redis.client.PubSub:
        if self._subscription is None:
            self._subscription = client().pubsub()  # type: ignore[no-untyped-call] # redis-py
            self._subscription.subscribe(self._channel)
            self._subscription.get_message(timeout=1)  # the confirmation
        return self._subscription

    def close(self) -> None:
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            try:
                subscription.close()
            except (redis.RedisError, OSError) as error:
                log.debug("wake.close_failed", error=str(error))
