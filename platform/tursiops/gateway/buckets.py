"""What a request holds of its key's limits, and the buckets that one gateway keeps while Redis is away."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

_KEYS = 10_000


@dataclass(slots=True)
class Reservation:
    """What one request holds of its key's limits. `settle` ends it, once."""

    key: str | None
    request_id: str
    tokens: int
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    local: bool = False
    settled: bool = False


class LocalBuckets:
    """The rules of reserve.lua and settle.lua within one process."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, _Bucket] = OrderedDict()

    def reserve(self, held: Reservation, now: float) -> tuple[str, float]:
        """("", 0), or the limit that refuses and the wait in ms."""
        assert held.key is not None
        bucket = self._keys.pop(held.key, None) or _Bucket(now)
        self._keys[held.key] = bucket
        if len(self._keys) > _KEYS:
            self._keys.popitem(last=False)
        bucket.refill(held, now)
        if held.rpm is not None and bucket.requests < 1:
            return "requests_per_minute", (1 - bucket.requests) * 60_000 / max(held.rpm, 1)
        if held.tpm is not None and bucket.tokens < held.tokens:
            return "tokens_per_minute", (held.tokens - bucket.tokens) * 60_000 / max(held.tpm, 1)
        if held.parallel is not None and len(bucket.places) >= held.parallel:
            return "parallel", 1_000
        bucket.requests -= 1
        bucket.tokens -= held.tokens
        bucket.places.add(held.request_id)
        return "", 0

    def settle(self, held: Reservation, used: int, now: float) -> None:
        bucket = self._keys.get(held.key or "")
        if bucket is None:
            return
        bucket.tokens += held.tokens - used
        bucket.refill(held, now)
        bucket.places.discard(held.request_id)


class _Bucket:
    """Levels of one key. Without a limit a level is infinite, so that a limit set later starts full."""

    __slots__ = ("at", "places", "requests", "tokens")

    def __init__(self, now: float) -> None:
        self.requests = math.inf
        self.tokens = math.inf
        self.at = now
        self.places: set[str] = set()

    def refill(self, held: Reservation, now: float) -> None:
        minutes = max(0.0, now - self.at) / 60
        self.at = now
        self.requests = math.inf if held.rpm is None else min(float(held.rpm), self.requests + minutes * held.rpm)
        self.tokens = math.inf if held.tpm is None else min(float(held.tpm), self.tokens + minutes * held.tpm)
