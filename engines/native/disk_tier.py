"""The prefix cache's third tier: KV blocks on a disk, which a restarted engine finds again.

Down: a block that is full and computed is written once, by way of host memory: the next step's copies take it to a host
block, and once that step is settled a thread of its own writes it. Up: a request that waits and whose prefix goes on on
the disk has it read into host blocks by other threads, is passed over meanwhile, and then begins as if the host had
always had it (`engines.native.host_tier`). The core's thread plans and looks up; it never touches a file.

Block identities are digests here: SHA-256 over model, layout, tenant's salt and all tokens up to the block's end.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from engines.native.blocks import BlockPool, Key
from engines.native.disk_store import BlockStore
from engines.native.request import Request

log = logging.getLogger(__name__)

STEP_BYTES = 8 * 2**20
"""Of blocks that one step copies to the host for the disk: under a millisecond of a GPU's bus."""
WRITING_SHARE = 4
"""One in so many host blocks may wait to be written."""
READERS = 4
LEAST_WAIT_S = 0.05
"""How long a request waits for the disk at least; else as long as computing would take."""


@dataclass(slots=True)
class DiskCounts:
    """Since the start, of blocks unless bytes are said; bytes_used: of all models in the folder, now."""

    hits: int = 0  # read for a request
    misses: int = 0  # full blocks of prompts that neither device, host nor disk had
    dropped: int = 0  # never written: the disk was full, broken or too slow
    late: int = 0  # read after their request had stopped waiting
    read_bytes: int = 0
    written_bytes: int = 0
    evicted: int = 0
    invalid: int = 0
    errors: int = 0
    bytes_used: int = 0
    writing: bool = True


@dataclass(slots=True, eq=False)
class Load:
    """Blocks on their way up. held: host blocks before them, which must not go meanwhile."""

    digests: list[int] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    read: list[bool] = field(default_factory=list)
    left: int = 0  # blocks that no thread is done with
    deadline: float = 0.0  # time.monotonic()
    given_up: bool = False  # its request did not wait for it

    def awaited(self) -> bool:
        """Whether it is worth waiting for."""
        self.given_up = self.given_up or (self.left > 0 and time.monotonic() >= self.deadline)
        return self.left > 0 and not self.given_up


@dataclass(frozen=True, slots=True)
class Write:
    """A block on its way down; the host block is owned until it is done."""

    digest: int
    place: int
    host: int
    before: int | None  # digest of the block before it


class DiskTier:
    """view: host block → its bytes, writable, [bytes of a block]. min_tokens: from how many on reading is cheaper than
    computing (`engines.native.disk_costs`). compute_s: seconds of prefill per token. Owned by one `HostTier`."""

    def __init__(
        self,
        store: BlockStore,
        identity: bytes,
        view: Callable[[int], memoryview],
        *,
        min_tokens: int,
        compute_s: float,
        readers: Executor,
        writer: Executor,
    ) -> None:
        self.min_tokens = min_tokens
        self._store, self._root, self._view = store, identity, view
        self._compute_s, self._readers, self._writer = compute_s, readers, writer
        self._counts = DiskCounts()
        self._fresh: OrderedDict[Key, tuple[int, int]] = OrderedDict()  # computed, not copied: → block, digest
        self._leaving: dict[Key, int] = {}  # of them what the device is losing in this plan: → digest
        self._pending: dict[int, int] = {}  # digest → place, from computed to written
        self._staged: deque[tuple[int, Write]] = deque()  # (step that copies it, …)
        self._writing: set[Write] = set()
        self._loads: dict[int, Load] = {}  # request → what was asked for it, once
        self._active: list[Load] = []
        self._coming: dict[int, Load] = {}  # digest → that brings it
        self._done: deque[Write | tuple[Load, Sequence[int], list[bool]]] = deque()  # from the threads
        self._refreshing = False

    def attach(self, pool: BlockPool, take: Callable[[int], list[int]]) -> None:
        """pool: the host's. take: so many of its blocks, owned, which no step writes."""
        self._pool, self._take = pool, take
        self._most_writing = max(1, pool.usable // WRITING_SHARE)

    def identity(self, key: Key) -> int:
        """Of the prefix that the block of `key` completes."""
        prefix, tokens = key
        before = b"s" + prefix.encode() if isinstance(prefix, str) else b"p" + prefix.to_bytes(32, "big")
        return int.from_bytes(hashlib.sha256(self._root + before + tokens).digest(), "big")

    def facts(self) -> dict[str, int]:
        """For state.json and the console."""
        return {
            "kv_disk_bytes": self._store.limit,
            "kv_disk_blocks": self._store.limit // self._store.file_bytes,
            "kv_disk_blocks_found": len(self._store),
            "kv_disk_min_tokens": self.min_tokens,
        }

    def counts(self) -> DiskCounts:
        counts, of_store = self._counts, self._store.counts
        counts.read_bytes, counts.written_bytes = of_store.read_bytes, of_store.written_bytes
        counts.evicted, counts.invalid, counts.errors = of_store.evicted, of_store.invalid, of_store.errors
        counts.bytes_used, counts.writing = of_store.bytes_used, not of_store.resting
        return counts

    # Down

    def registered(self, block: int, key: Key, digest: int) -> None:
        """`block` on the device is full, computed and findable."""
        if self._store.place(digest) is not None or digest in self._pending:
            return
        place = self._place_of(key)
        if place is not None:
            self._pending[digest] = place
            self._fresh[key] = block, digest

    def _place_of(self, key: Key) -> int | None:
        """None: the block before it is not on the disk and will not be, so nobody could find this one."""
        before = key[0]
        if isinstance(before, str):
            return 0
        place = self._store.place(before)
        place = self._pending.get(before) if place is None else place
        return None if place is None else place + 1

    @property
    def restless(self) -> bool:
        """Blocks wait to be copied."""
        return bool(self._fresh)

    @property
    def _room(self) -> bool:
        """Another host block may wait to be written."""
        return len(self._staged) + len(self._writing) < self._most_writing

    def copies(self, above: BlockPool, step: int, *, idle: bool) -> dict[int, int]:
        """What step `step` is to copy for the disk: host block → block of the pool `above`. idle: no pass waits."""
        copies: dict[int, int] = {}
        most = self._most_writing if idle else max(1, STEP_BYTES // self._store.file_bytes)
        while self._fresh and self._room and self._pool.available and len(copies) < most:
            key, (block, digest) = self._fresh.popitem(last=False)
            if above.find(key) != block or self._place_of(key) is None:
                self._drop(digest)
                continue
            (host,) = self._take(1)
            copies[host] = block
            self._stage(step, key, digest, host)
        return copies

    def _stage(self, step: int, key: Key, digest: int, host: int) -> None:
        before = key[0] if isinstance(key[0], int) else None
        self._staged.append((step, Write(digest, self._pending[digest], host, before)))

    def evicted(self, key: Key, spills: bool) -> None:
        """The device is about to lose the block of `key`; spills: it will be copied to the host for that."""
        fresh = self._fresh.pop(key, None)
        if fresh is not None and spills:
            self._leaving[key] = fresh[1]
        elif fresh is not None:
            self._drop(fresh[1])

    def spilled(self, step: int, hosts: Iterable[tuple[int, Key]]) -> None:
        """Step `step` copies what the device loses to these host blocks: what was still to be written is from there."""
        for host, key in hosts:
            digest = self._leaving.pop(key, None)
            if digest is None or self._pool.find(key) != host:
                continue
            if self._room:
                self._pool.acquire([host])
                self._stage(step, key, digest, host)
            else:
                self._drop(digest)
        for digest in self._leaving.values():  # the host had no room after all
            self._drop(digest)
        self._leaving.clear()

    def settle(self, step: int) -> None:
        """What steps up to `step` copied is there: on to the disk."""
        ready = []
        while self._staged and self._staged[0][0] <= step:
            ready.append(self._staged.popleft()[1])
        if ready:
            self._writing.update(ready)
            self._writer.submit(self._write, ready)
        self.collect()

    def failed(self, step: int) -> None:
        """What step `step` copied can't be trusted."""
        for at, write in list(self._staged):
            if at == step:
                self._staged.remove((at, write))
                self._drop(write.digest)
                self._pool.release([write.host], step)

    def _drop(self, digest: int) -> None:
        if self._pending.pop(digest, None) is not None:
            self._counts.dropped += 1

    def _write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            try:
                self._store.write(write.digest, write.place, self._view(write.host), write.before)
            except Exception:
                log.exception("a KV block was not written to the disk")
            finally:
                self._done.append(write)
        self._refresh()

    def _refresh(self) -> None:
        try:
            self._store.refresh()
        except Exception:
            log.exception("the files of KV blocks could not be looked through")
        finally:
            self._refreshing = False

    # Up

    def awaits(self, request: Request, above: BlockPool, cached: Sequence[int]) -> bool:
        """Whether blocks of the request are on their way from the disk. Asks for them at its first call, if there are
        enough to be worth it. cached: its leading blocks in the pool `above`."""
        self.collect()
        load = self._loads.get(request.id)
        if load is None:
            load = self._ask(request, above, cached)
            if load is None:
                return True
            self._loads[request.id] = load
        return load.awaited()

    def forget(self, request: Request) -> None:
        """It runs, or has ended."""
        self._loads.pop(request.id, None)

    def _ask(self, request: Request, above: BlockPool, cached: Sequence[int]) -> Load | None:
        """A load, of no blocks where the disk has nothing worth it; None while another one brings the first block."""
        size = self._pool.block_size
        token_ids = request.token_ids[len(cached) * size :]
        held, after = self._pool.match_after(above.prefix_after(cached, request.salt), token_ids[:-1])
        load = Load(held=held)
        for start in range(len(held) * size, len(token_ids) - size, size):
            key = self._pool.key(after, token_ids[start : start + size])
            after = digest = self.identity(key)
            if self._store.place(digest) is None:
                break
            if not load.digests and (other := self._coming.get(digest)) is not None and other.awaited():
                return None
            load.digests.append(digest)
            load.keys.append(key)
        before = [*above.identities(cached), *self._pool.identities(held)]
        self._store.touch([digest for digest in before if isinstance(digest, int)] + load.digests)
        self._counts.misses += max(0, len(token_ids) - 1) // size - len(held) - len(load.digests)
        self._start(load)
        return load

    def _start(self, load: Load) -> None:
        self._pool.acquire(load.held)
        count = min(len(load.digests), self._pool.available)
        if not count or count * self._pool.block_size < self.min_tokens:
            self._pool.release(load.held, 0)
            load.held = []
            return
        load.digests, load.keys = load.digests[:count], load.keys[:count]
        load.blocks, load.read, load.left = self._take(count), [False] * count, count
        seconds = self._compute_s * count * self._pool.block_size
        load.deadline = time.monotonic() + max(LEAST_WAIT_S, seconds)
        self._active.append(load)
        self._coming |= dict.fromkeys(load.digests, load)
        for first in range(min(READERS, count)):
            self._readers.submit(self._read, load, range(first, count, READERS))

    def _read(self, load: Load, places: Sequence[int]) -> None:
        read = [False] * len(places)
        try:
            for at, place in enumerate(places):
                read[at] = self._store.read(load.digests[place], self._view(load.blocks[place]))
        except Exception:
            log.exception("KV blocks were not read from the disk")
        finally:
            self._done.append((load, places, read))

    # Both

    def collect(self) -> None:
        """Take in what the threads are done with."""
        while self._done:
            done = self._done.popleft()
            if isinstance(done, Write):
                self._writing.discard(done)
                if self._store.place(done.digest) is None:
                    self._drop(done.digest)
                self._pending.pop(done.digest, None)
                self._pool.release([done.host], 0)
                continue
            load, places, read = done
            for place, good in zip(places, read, strict=True):
                load.read[place] = good
            load.left -= len(places)
            if not load.left:
                self._arrived(load)
        if self._store.stale and not self._refreshing:
            self._refreshing = True
            self._writer.submit(self._refresh)

    def _arrived(self, load: Load) -> None:
        for digest, key, host, good in zip(load.digests, load.keys, load.blocks, load.read, strict=True):
            self._coming.pop(digest, None)
            self._counts.hits += good and not load.given_up
            self._counts.late += good and load.given_up
            self._counts.misses += not good
            if good and self._pool.find(key) is None:
                self._pool.enter(host, key, digest)
        self._active.remove(load)
        self._pool.release(load.held + load.blocks, 0)

    def tables(self) -> list[list[int]]:
        """Host blocks that are owned here."""
        down = [write.host for _, write in self._staged] + [write.host for write in self._writing]
        return [down, *(load.held + load.blocks for load in self._active)]

    def close(self) -> None:
        """Wait for what was begun."""
        self._readers.shutdown()
        self._writer.shutdown()
