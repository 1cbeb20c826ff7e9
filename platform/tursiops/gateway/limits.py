"""Limits of a key: requests and tokens per minute, requests at once. One atomic reservation per request.

Requests and tokens are two buckets that hold one minute's worth and refill evenly. A request takes an estimate of
its tokens out before it runs; the difference to what it used is given back afterwards, and may also be a debt.
All gateways share the buckets in Redis; while Redis is away each gateway keeps buckets of its own.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tursiops.gateway import metrics
from tursiops.gateway.batch import ScriptBatch
from tursiops.gateway.buckets import LocalBuckets, Reservation
from tursiops.gateway.callers import Caller
from tursiops.gateway.errors import GatewayError

log = structlog.get_logger()

LEASE_S = 120.0  # a place of a gateway that died is free again after so long
RENEW_S = 30.0
_REDIS_TIMEOUT_S = 0.5
_AWAY_S = 1.0  # after a failure Redis is not asked for so long
_RESERVE = (Path(__file__).parent / "reserve.lua").read_text()
_SETTLE = (Path(__file__).parent / "settle.lua").read_text()


class Limiter:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._scripts = ScriptBatch(redis, _REDIS_TIMEOUT_S)
        self._local = LocalBuckets()
        self._held: dict[str, str] = {}  # request id → its key's set of places, to be renewed
        self._away_until = 0.0

    async def reserve(self, caller: Caller, request_id: str, tokens: int) -> Reservation:
        """Raises GatewayError (429) with the time after which it is worth asking again."""
        if caller.key is None or (caller.rpm, caller.tpm, caller.parallel) == (None, None, None):
            return Reservation(None, request_id, tokens, settled=True)
        if caller.tpm is not None and tokens > caller.tpm:
            raise GatewayError(
                429,
                "tokens_per_minute",
                f"This request may use {tokens} tokens, more than the {caller.tpm} per minute of this key. "
                "Send less text or a lower max_tokens.",
            )
        held = Reservation(caller.key, request_id, tokens, caller.rpm, caller.tpm, caller.parallel)
        refusal, wait_ms = await self._take(held)
        if refusal:
            raise _exceeded(refusal, caller, wait_ms / 1000)
        return held

    async def settle(self, held: Reservation, used: int) -> None:
        """Give back what was reserved and not used, and the place. Does nothing the second time."""
        if held.settled or held.key is None:
            return
        held.settled = True
        self._held.pop(held.request_id, None)
        if held.local:
            self._local.settle(held, used, time.monotonic())
            return
        try:
            arguments: list[int | str] = [_number(held.tpm), held.tokens - used, held.request_id]
            await self._scripts.call(_SETTLE, _keys(held.key), arguments)
        except (RedisError, OSError, TimeoutError) as error:  # the bucket refills, the place's lease ends
            self._went_away(error)

    async def renew(self) -> None:
        """Keep the places of running requests, until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                async with self._redis.pipeline(transaction=False) as batch:
                    for request_id, places in list(self._held.items()):
                        batch.zadd(places, {request_id: (time.time() + LEASE_S) * 1000}, xx=True)
                    await batch.execute()
            except (RedisError, OSError) as error:
                self._went_away(error)

    async def _take(self, held: Reservation) -> tuple[str, float]:
        """("", 0), or the limit that refuses and the wait in ms."""
        if time.monotonic() >= self._away_until:
            arguments: list[int | str] = [
                *map(_number, (held.rpm, held.tpm, held.parallel)),
                held.tokens,
                held.request_id,
                int(LEASE_S * 1000),
            ]
            try:
                assert held.key is not None
                answer = await self._scripts.call(_RESERVE, _keys(held.key), arguments)
                if not answer[0] and held.parallel is not None:
                    self._held[held.request_id] = _keys(held.key)[1]
                return answer[0].decode(), float(answer[1])
            except (RedisError, OSError, TimeoutError) as error:
                self._went_away(error)
        held.local = True
        metrics.limits_local.inc()
        return self._local.reserve(held, time.monotonic())

    def _went_away(self, error: Exception) -> None:
        if time.monotonic() >= self._away_until:
            log.warning("gateway.limits_local", reason=str(error) or type(error).__name__)
        self._away_until = time.monotonic() + _AWAY_S


def _keys(key: str) -> list[str]:
    return [f"tursiops:limit:{{{key}}}", f"tursiops:places:{{{key}}}"]  # braces: one slot of a Redis cluster


def _number(limit: int | None) -> int:
    return -1 if limit is None else limit


def _exceeded(limit: str, caller: Caller, wait_s: float) -> GatewayError:
    sentence = {
        "requests_per_minute": f"This key may send {caller.rpm} requests per minute.",
        "tokens_per_minute": f"This key may use {caller.tpm} tokens per minute.",
        "parallel": f"This key may have {caller.parallel} requests running at once.",
    }[limit]
    return GatewayError(429, limit, f"{sentence} Try again in {max(1, round(wait_s))} s.", retry_after=wait_s)
