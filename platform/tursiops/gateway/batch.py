"""Script calls to Redis that arrive together travel together: a burst of requests is one round trip, one connection."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

_MOST = 500  # calls in one round trip


class ScriptBatch:
    """Owns the order of calls: they run in Redis as they were made here."""

    def __init__(self, redis: Redis, timeout: float) -> None:
        self._redis = redis
        self._timeout = timeout
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def call(self, script: str, keys: list[str], arguments: list[int | str]) -> Any:
        """The script's answer. Raises RedisError, OSError or TimeoutError for the whole batch that it was in."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(((script, len(keys), *keys, *arguments), answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            try:
                async with asyncio.timeout(self._timeout), self._redis.pipeline(transaction=False) as pipe:
                    for command, _ in batch:
                        pipe.eval(*command)
                    results: list[Any] = await pipe.execute(raise_on_error=False)
            except Exception as error:
                results = [error] * len(batch)
            for (_, answer), result in zip(batch, results, strict=True):
                if answer.done():  # its request has gone
                    continue
                if isinstance(result, BaseException):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
