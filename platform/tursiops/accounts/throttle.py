"""Login attempts, counted per user name and address in the cache, so that all web processes count together."""

from __future__ import annotations

import hashlib
import time

import structlog
from django.core.cache import cache
from redis.exceptions import RedisError

from tursiops.core.errors import TursiopsError

ATTEMPTS = 5
WINDOW_S = 300

log = structlog.get_logger(__name__)


class TooMany(TursiopsError):
    status = 429
    code = "too_many_attempts"

    def __init__(self, retry_after: int) -> None:
        super().__init__(
            "Too many failed attempts to sign in.", hint=f"Wait {retry_after} seconds, then try once more."
        )
        self.retry_after = retry_after
        self.headers = {"Retry-After": str(retry_after)}


def start(username: str, address: str | None) -> str:
    """Count an attempt before the password is looked at, so that attempts at the same time count too.

    Returns what to give to `clear` after a success. Raises TooMany.
    """
    digest = hashlib.sha256(f"{username.strip().casefold()}\n{address}".encode()).hexdigest()
    key = f"login:{digest}"
    try:
        cache.add(f"{key}:until", time.time() + WINDOW_S, WINDOW_S)
        cache.add(key, 0, WINDOW_S)
        if cache.incr(key) > ATTEMPTS:
            raise TooMany(max(1, round(cache.get(f"{key}:until", time.time() + 1) - time.time())))
    except (RedisError, OSError) as error:  # without the broker people must still be able to look at what is wrong
        log.warning("login.not_counted", error=str(error))
    except ValueError:  # the window ended between add and incr
        return key
    return key


def clear(key: str) -> None:
    try:
        cache.delete_many([key, f"{key}:until"])
    except (RedisError, OSError) as error:
        log.warning("login.not_cleared", error=str(error))
