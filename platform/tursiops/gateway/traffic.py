"""Prompts kept for calibration: only of keys whose maker consented, masked, sealed, few, and for a limited time.

A Redis list per team, the newest first. The control plane reads it (`tursiops.quantization.traffic`); what Redis, being
away, does not get is lost: these are samples.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections import deque
from typing import Any

import orjson
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tursiops import secrets
from tursiops.gateway.masking import masked

log = structlog.get_logger()

LABEL = "traffic"  # of the key that rows are sealed with
MOST = 4096  # rows of a team
LIFETIME_S = 30 * 86400
LARGEST = 64 * 1024  # bytes of a request that is looked at
SWEEP_S = 3600.0  # between looks for rows that are older than that
EVERY_S = 0.2  # at most one row in so long: masking takes the event loop's time
_WAITING = 256
_TIMEOUT_S = 2.0
_SWEEP_TIMEOUT_S = 60.0
_TAIL = 64  # oldest rows that are looked at together


def key_of(team: str) -> str:
    return f"tursiops:traffic:{team}"


class TrafficSink:
    """`put` never waits; `run` empties the buffer, and Redis of old rows, until cancelled."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._buffer: deque[tuple[str, bytes]] = deque(maxlen=_WAITING)
        self._filled = asyncio.Event()
        self._put_at = float("-inf")

    def put(self, team: str, key: str, body: bytes) -> None:
        """Keep the request's texts; nothing of it where one came shortly before, or it is large."""
        now = time.monotonic()
        if len(body) > LARGEST or now - self._put_at < EVERY_S:
            return
        row = row_of(orjson.loads(body))
        if row is None:
            return
        self._put_at = now
        self._buffer.append((team, secrets.encrypt(LABEL, orjson.dumps({"key": key, "at": time.time(), "row": row}))))
        self._filled.set()

    async def run(self) -> None:
        sweep = asyncio.create_task(self._sweep())
        try:
            await self._empty()
        finally:
            sweep.cancel()

    async def _empty(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._buffer:
                await self._send(*self._buffer.popleft())

    async def _send(self, team: str, row: bytes) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._redis.pipeline(transaction=False) as pipe:
                pipe.lpush(key_of(team), row)
                pipe.ltrim(key_of(team), 0, MOST - 1)
                pipe.expire(key_of(team), LIFETIME_S)  # of the list, at each push anew: rows go by `_sweep`
                await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("gateway.traffic_lost", reason=str(error) or type(error).__name__)

    async def _sweep(self) -> None:
        """Of every team: one that sends nothing any more has old rows too."""
        while True:
            try:
                async with asyncio.timeout(_SWEEP_TIMEOUT_S):
                    async for key in self._redis.scan_iter(match=key_of("*"), count=1000):
                        await self._forget_old(key)
            except (RedisError, OSError, TimeoutError) as error:
                log.warning("gateway.traffic_not_swept", reason=str(error) or type(error).__name__)
            await asyncio.sleep(SWEEP_S)

    async def _forget_old(self, key: bytes) -> None:
        """By value, not by place: other gateways push and sweep at the same time."""
        limit = time.time() - LIFETIME_S
        while True:
            tail: Any = await self._redis.lrange(key, -_TAIL, -1)  # redis-py: str, though nothing is decoded
            old = [row for row in tail if _sealed_at(row) < limit]
            if old:
                async with self._redis.pipeline(transaction=False) as pipe:
                    for row in old:
                        pipe.lrem(key, -1, row)
                    await pipe.execute()
            if len(old) < _TAIL:
                return


def _sealed_at(row: bytes) -> int:
    """Unix seconds, which a Fernet token carries in the clear: 0x80, 8 bytes of time. 0 for what is no token."""
    try:
        head = base64.urlsafe_b64decode(row[:12])
    except binascii.Error:
        return 0
    return int.from_bytes(head[1:9], "big") if head[:1] == b"\x80" else 0


def row_of(fields: dict[str, Any]) -> dict[str, Any] | None:
    """As calibration data has it: {"messages"} or {"text"}; of parts that are no text, nothing. None: no text."""
    messages = fields.get("messages")
    if isinstance(messages, list):
        told = [said for message in messages if (said := _message(message)) is not None]
        system = fields.get("system")  # Anthropic's place for it
        if isinstance(system, str) and system:
            told.insert(0, {"role": "system", "content": masked(system)})
        return {"messages": told} if told else None
    text = fields.get("prompt", fields.get("input"))
    return {"text": masked(text)} if isinstance(text, str) and text.strip() else None


def _message(message: Any) -> dict[str, str] | None:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str) or not content.strip():
        return None
    return {"role": message["role"], "content": masked(content)}
