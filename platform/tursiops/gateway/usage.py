"""Usage records on their way out: memory → Redis stream, or → disk while Redis is away, and later from there.

A record may arrive twice (an answer of Redis that got lost, a spill file read by two gateways); the database keeps
the first of each request id. None is lost short of a power cut, or of more than `usage_buffer` of them while neither
Redis nor the disk takes any: what a killed gateway still held, and what its running requests had used, stands in its
ledger.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tursiops.gateway import metrics, records
from tursiops.gateway.config import Config
from tursiops.gateway.ledger import Ledger, Slot
from tursiops.gateway.spill import Spill

log = structlog.get_logger()
_BATCH = 500
_REPLAY_EVERY_S = 5.0
_REDIS_TIMEOUT_S = 2.0
_AGAIN_S = 2.0  # between tries while neither Redis nor the disk takes anything


class UsageSink:
    """`put` never waits; `run` empties the buffer until cancelled."""

    def __init__(self, config: Config, redis: Redis, ledger: Ledger) -> None:
        self._config = config
        self._redis = redis
        self._ledger = ledger
        self._buffer: deque[tuple[bytes, Slot]] = deque()
        self._filled = asyncio.Event()
        self._spill = Spill(config.run_dir / "usage-spill", config.usage_spill_limit)
        self._stream_full = False

    def put(self, entry: records.UsageEntry, slot: Slot) -> None:
        """`slot` keeps the record until it lies elsewhere."""
        slot.write(entry)
        if len(self._buffer) >= self._config.usage_buffer:
            self._drop(1)
            slot.free()
            return
        self._buffer.append((records.encode(entry), slot))
        self._filled.set()

    async def run(self) -> None:
        replay = asyncio.create_task(self._replay())
        try:
            while True:
                await self._filled.wait()
                self._filled.clear()
                if not await self.flush():
                    await asyncio.sleep(_AGAIN_S)
                    self._filled.set()
        finally:
            replay.cancel()

    async def flush(self) -> bool:
        """Empty the buffer, to Redis or to disk; False where neither takes what is left of it."""
        while self._buffer:
            batch = [record for record, _ in itertools.islice(self._buffer, _BATCH)]
            if not await self._send(batch) and not self._to_disk(batch):
                return False
            for _ in batch:
                self._buffer.popleft()[1].free()
        return True

    async def close(self) -> None:
        await self.flush()
        self._spill.close()
        self._ledger.close()

    async def _send(self, batch: list[bytes]) -> bool:
        """True if Redis has all of `batch`."""
        if self._stream_full and await self._length() >= self._config.usage_stream_limit:
            return False
        try:
            async with asyncio.timeout(_REDIS_TIMEOUT_S), self._redis.pipeline(transaction=False) as pipe:
                for record in batch:
                    pipe.xadd(records.STREAM, {records.FIELD: record})
                pipe.xlen(records.STREAM)
                answers = await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("gateway.usage_to_disk", records=len(batch), reason=str(error) or type(error).__name__)
            return False
        self._stream_full = answers[-1] >= self._config.usage_stream_limit
        return True

    async def _length(self) -> int:
        """Records in the stream; the limit itself where Redis can't be asked."""
        try:
            async with asyncio.timeout(_REDIS_TIMEOUT_S):
                return int(await self._redis.xlen(records.STREAM))
        except (RedisError, OSError, TimeoutError):
            return self._config.usage_stream_limit

    def _to_disk(self, batch: list[bytes]) -> bool:
        """Whether nothing of `batch` is left to be done: it was written, as far as the limit of the files allows."""
        try:
            written = self._spill.append(batch)
        except OSError as error:
            log.error("gateway.usage_spill_failed", error=str(error), waiting=len(self._buffer))
            return False
        metrics.usage_spilled.inc(written)
        if written < len(batch):
            self._drop(len(batch) - written)
        return True

    def _drop(self, count: int) -> None:
        metrics.usage_dropped.inc(count)
        log.error("gateway.usage_dropped", records=count)

    async def _replay(self) -> None:
        """Bring back what lies on disk, of this process and of ones that died, whenever Redis answers."""
        while True:
            await self.recover()
            if self._spill.files() and await self._length() < self._config.usage_stream_limit:
                await self.replay()
            await asyncio.sleep(_REPLAY_EVERY_S)

    async def recover(self) -> None:
        """Bill what gateways that were killed had not: their files stay until Redis has the records."""
        for path, entries in self._ledger.left_behind():
            if entries and not await self._send([records.encode(entry) for entry in entries]):
                return
            path.unlink(missing_ok=True)
            log.info("gateway.usage_of_a_killed_gateway", records=len(entries))

    async def replay(self) -> None:
        self._spill.close()
        for path in self._spill.files():
            with self._spill.claimed(path) as lines:
                if lines is None:
                    continue
                for start in range(0, len(lines), _BATCH):
                    if not await self._send(lines[start : start + _BATCH]):
                        return
                path.unlink(missing_ok=True)
                log.info("gateway.usage_brought_back", records=len(lines))
