"""Who may join the queue: the whole queue has an end, and no tenant may fill it.

A tenant may hold at most SHARE × the places that are free. This threshold moves by itself (dynamic thresholds,
Choudhury and Hahne, 1998): one tenant alone gets SHARE / (1 + SHARE) of the queue, n equally greedy ones share it
alike, and there is always room for one that comes anew.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque

from engines.native.serve.errors import ApiError

SHARE = 4.0
"""Alone, a tenant may hold 4/5 of the queue; of two greedy ones each 4/9."""
RECENT = 256
"""Endings that the drain rate is measured over."""
RECENT_S = 60.0
"""How old they may be."""
FREED_SHARE = 0.05
"""Of the queue that should be free again when a refused client comes back."""
LONGEST_WAIT_S = 300
UNKNOWN_WAIT_S = 5
"""Told where nothing has ended of late, so that there is no rate."""


class DrainRate:
    """Requests per second that end, over the newest ones."""

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=RECENT)

    def ended(self, now: float) -> None:
        self._ends.append(now)

    def per_second(self, now: float) -> float:
        """0 where none ended of late. `now`: time.monotonic(), s."""
        while self._ends and now - self._ends[0] > RECENT_S:
            self._ends.popleft()
        if not self._ends:
            return 0.0
        return len(self._ends) / max(now - self._ends[0], 1.0)


class QueueDoor:
    """Counts the requests that wait or run, in all and by tenant. limit: of all. The tenant "" is a caller without a
    gateway, and has no threshold of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tenants: dict[int, str] = {}  # request id → tenant
        self._held: Counter[str] = Counter()
        self._rate = DrainRate()

    def enter(self, request_id: int, tenant: str) -> None:
        """Take a place. Raises ApiError: 503 where there is none, 429 where the tenant has its share."""
        free = self._limit - len(self._tenants)
        if free <= 0:
            message = f"the engine has {len(self._tenants)} requests, its limit; try again later"
            raise ApiError(503, message, code="overloaded", retry_after=self._wait(1.0))
        held = self._held[tenant]
        if tenant and held >= max(1.0, SHARE * free):
            message = (
                f"your team has {held} requests in the engine and {free} places of {self._limit} are left, which "
                "others may need; try again later, or send fewer at once"
            )
            raise ApiError(429, message, code="tenant_queue_full", retry_after=self._wait(held / len(self._tenants)))
        self._tenants[request_id] = tenant
        self._held[tenant] += 1

    def leave(self, request_id: int) -> None:
        tenant = self._tenants.pop(request_id)
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._rate.ended(time.monotonic())

    def _wait(self, share: float) -> int:
        """Seconds until FREED_SHARE of the queue is free, at the rate at which requests end of late. share: of these
        ends that give the caller a place."""
        rate = self._rate.per_second(time.monotonic()) * share
        if not rate:
            return UNKNOWN_WAIT_S
        return min(LONGEST_WAIT_S, math.ceil(max(1.0, FREED_SHARE * self._limit) / rate))
