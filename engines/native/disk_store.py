"""KV blocks as files: one per block, the least recently used deleted first.

    <folder>/tursiops-kv/<identity of model and layout>/<2 hex>/<digest of all tokens up to the block's end>-<place>.kv

A file is a header and the block's bytes as they lie in host memory. It is written beside its place and renamed, so a
process that is killed leaves at most a partial file that nobody reads, and of two engines that write the same block one
wins, with the same bytes. Nothing is synced: after a loss of power a file may be torn, which its checksum tells. A file
that is not what its name says is a miss, and deleted. Times of modification are times of use, for all engines.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import logging
import math
import os
import re
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

ROOT = "tursiops-kv"
MIN_FREE_BYTES = 512 * 2**20
"""Of the file system: below it nothing is written, so that the cache is not what fills a disk."""
RETRY_S = 60.0
"""How long writes rest after one has failed."""
RESCAN_S = 60.0
"""How often the files of other engines on the folder are counted."""
STALE_S = 600.0
"""Age at which a partial file is nobody's."""
PLACE_S = 0.001
"""What a block is older, at least, than the one before it in its sequence, without which it is not found: so tails
are deleted before heads."""

_MAGIC = b"TSKV0001"
_HEADER = struct.Struct("<8s32s32sQ4xI")  # magic, identity, digest, bytes that follow, CRC-32 of all but itself
_CRC = _HEADER.size - 4
_NAME = re.compile(r"([0-9a-f]{64})-([0-9]{1,9})\.kv")


@dataclass(slots=True)
class StoreCounts:
    """Since the start; blocks unless bytes are said. bytes_used: of all models in the folder, now."""

    read_bytes: int = 0
    written: int = 0
    written_bytes: int = 0
    evicted: int = 0
    invalid: int = 0  # files that were not what their name said
    errors: int = 0  # reads and writes that the system refused
    bytes_used: int = 0
    resting: bool = False  # nothing is written: the disk is full or broken


class BlockStore:
    """Lookups come from the core's thread, everything else from the disk's own threads.

    identity: 32 bytes; block_bytes: of one block; limit: bytes that files of all models in the folder may take.
    Raises OSError where the folder can't be made or written.
    """

    def __init__(self, folder: Path, identity: bytes, block_bytes: int, limit: int) -> None:
        self.counts = StoreCounts()
        self.file_bytes = _HEADER.size + block_bytes
        self.limit = limit
        self._root, self._identity = folder / ROOT, identity
        self.folder = self._root / identity.hex()[:32]
        self._partial = self.folder / "partial"
        self._partial.mkdir(0o700, parents=True, exist_ok=True)
        self._names = (f"{os.getpid()}-{time.time_ns()}-{number}.part" for number in itertools.count())
        self._check_writable()
        self._lock = threading.Lock()  # of what follows; never held while a file is touched
        self._places: dict[int, int] = {}  # digest → place in its sequence, of this identity
        self._files: dict[str, tuple[float, int]] = {}  # path under the root → (last use, unix s; bytes)
        self._oldest: list[tuple[float, str]] = []  # heap; entries that `_files` contradicts are stale
        self._listed: dict[str, float] = {}  # folder → when it was listed, unix s
        self._touched: deque[tuple[int, float]] = deque()
        self._rests_until = 0.0  # time.monotonic()
        self._scanned_at = 0.0
        self.scan()

    def _check_writable(self) -> None:
        probe = self._partial / next(self._names)
        probe.touch(0o600)
        probe.unlink()

    # From any thread

    def place(self, digest: int) -> int | None:
        """Place of the block in its sequence, from 0; None: it is not there."""
        return self._places.get(digest)

    def __len__(self) -> int:
        """Blocks of this identity."""
        return len(self._places)

    def touch(self, digests: Sequence[int]) -> None:
        """They were used now, in the order of their sequence. Takes effect with `refresh`."""
        now = time.time()
        self._touched.extend((digest, now - PLACE_S * number) for number, digest in enumerate(digests))

    @property
    def stale(self) -> bool:
        """`refresh` has something to do."""
        return bool(self._touched)

    # From the disk's threads

    def read(self, digest: int, into: memoryview) -> bool:
        """The block's bytes into `into`. False: it isn't there, or is not what it says; `into` is then undefined."""
        place = self._places.get(digest)
        if place is None:
            return False
        name = self._name(digest, place)
        header, beyond = bytearray(_HEADER.size), bytearray(1)
        try:
            with open(self._root / name, "rb", buffering=0) as file:
                count = os.readv(file.fileno(), [header, into, beyond])
        except FileNotFoundError:  # another engine needed the room
            self._drop(name)
            return False
        except OSError as error:
            self.counts.errors += 1
            log.warning("a KV block can't be read from the disk: %s", error)
            return False
        if count != self.file_bytes or not self._is(digest, header, into):
            self.counts.invalid += 1
            log.warning("%s is not the KV block that its name says; deleted", self._root / name)
            self._drop(name)
            with contextlib.suppress(OSError):
                (self._root / name).unlink()
            return False
        self.counts.read_bytes += len(into)
        return True

    def _is(self, digest: int, header: bytearray, payload: memoryview) -> bool:
        return bytes(header) == self._header(digest, payload)

    def _header(self, digest: int, payload: memoryview) -> bytes:
        fields = _HEADER.pack(_MAGIC, self._identity, digest.to_bytes(32, "big"), len(payload), 0)[:_CRC]
        return fields + zlib.crc32(payload, zlib.crc32(fields)).to_bytes(4, "little")

    def write(self, digest: int, place: int, payload: memoryview, before: int | None = None) -> bool:
        """before: digest of the block before it in its sequence. False: nothing is written now, because the disk is
        full or broken; it is tried again after RETRY_S."""
        if digest in self._places:
            return True
        if time.monotonic() < self._rests_until:
            return False
        part = self._partial / next(self._names)
        name = self._name(digest, place)
        try:
            self._make_room()
            self._put(part, self._header(digest, payload), payload)
            try:
                os.replace(part, self._root / name)
            except FileNotFoundError:  # the first of its folder, or the folder was cleared under us
                (self._root / name).parent.mkdir(0o700, parents=True, exist_ok=True)
                os.replace(part, self._root / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            self._rest(error)
            return False
        if self.counts.resting:
            log.info("KV blocks are written to %s again", self._root)
            self.counts.resting = False
        used = min(time.time(), self._used(before) - PLACE_S)
        with contextlib.suppress(OSError):  # of use to the next process only
            os.utime(self._root / name, (used, used))
        self._enter(name, used, self.file_bytes)
        self.counts.written += 1
        self.counts.written_bytes += len(payload)
        return True

    # For measuring (`engines.native.disk_costs`)

    def probe(self, digest: int, place: int, payload: memoryview) -> None:
        """Write a block that is on the disk itself afterwards. Raises OSError."""
        part, path = self._partial / next(self._names), self._root / self._name(digest, place)
        try:
            self._make_room()
            self._put(part, self._header(digest, payload), payload)
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        self._enter(self._name(digest, place), time.time(), self.file_bytes)

    def cool(self, digest: int) -> None:
        """Let the system forget what it holds of the block in memory, so that the next read is the disk's."""
        with open(self._root / self._name(digest, self._places[digest]), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def remove(self, digest: int) -> None:
        """Raises OSError."""
        if (place := self._places.get(digest)) is not None:
            self._delete(self._name(digest, place))

    def _used(self, digest: int | None) -> float:
        """When the block was used last, unix s; inf where it is not there."""
        place = None if digest is None else self._places.get(digest)
        if digest is None or place is None:
            return math.inf
        return self._files.get(self._name(digest, place), (math.inf, 0))[0]

    def _put(self, part: Path, header: bytes, payload: memoryview) -> None:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for piece in (memoryview(header), payload):
                while piece:  # a disk that fills up takes a part
                    piece = piece[file.write(piece) :]

    def _rest(self, error: OSError) -> None:
        self.counts.errors += 1
        self._rests_until = time.monotonic() + RETRY_S
        if not self.counts.resting:
            log.warning("no KV block is written to %s, tried again every %.0f s: %s", self._root, RETRY_S, error)
        self.counts.resting = True

    def refresh(self) -> None:
        """Take in what was touched, and what other engines did if that is due."""
        while self._touched:
            digest, used = self._touched.popleft()
            place = self._places.get(digest)
            if place is None:
                continue
            name = self._name(digest, place)
            with contextlib.suppress(OSError):  # it is gone, which the next read finds
                os.utime(self._root / name, (used, used))
            self._enter(name, used, self.file_bytes)
        if time.monotonic() - self._scanned_at > RESCAN_S:
            self.scan()

    def _make_room(self) -> None:
        """Raises OSError; ENOSPC where the file system has none."""
        self._partial.mkdir(0o700, parents=True, exist_ok=True)
        while self.counts.bytes_used + self.file_bytes > self.limit:
            name = self._pop_oldest()
            if name is None:
                break
            self._delete(name)
            self.counts.evicted += 1
        room = os.statvfs(self._partial)
        if room.f_bavail * room.f_frsize < MIN_FREE_BYTES + self.file_bytes:
            text = f"less than {MIN_FREE_BYTES >> 20} MiB are free"
            raise OSError(errno.ENOSPC, text, str(self._root))

    # Which files there are

    def scan(self) -> None:
        """List the folders that have changed, of all models."""
        self._scanned_at = time.monotonic()
        for folder in self._folders():
            begun = time.time()
            relative = f"{folder.parent.name}/{folder.name}"
            try:
                if folder.stat().st_mtime < self._listed.get(relative, 0.0) - 1.0:
                    continue
                self._list(folder, relative)
            except OSError as error:  # removed meanwhile, or not ours to read
                log.info("%s is not counted: %s", folder, error)
            self._listed[relative] = begun

    def _folders(self) -> Iterator[Path]:
        for model in self._root.iterdir():
            if len(model.name) != 32 or not model.is_dir():
                continue
            for folder in model.iterdir():
                if len(folder.name) == 2 and folder.is_dir():
                    yield folder
                elif folder.name == "partial":
                    _remove_stale(folder)

    def _list(self, folder: Path, relative: str) -> None:
        found = set()
        with os.scandir(folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    name = f"{relative}/{entry.name}"
                    found.add(name)
                    used = max(status.st_mtime, self._files.get(name, (0.0, 0))[0])
                    self._enter(name, used, status.st_size)
        for name in [name for name in list(self._files) if name.startswith(f"{relative}/") and name not in found]:
            if not (self._root / name).exists():  # not one that was written meanwhile
                self._drop(name)

    def _name(self, digest: int, place: int) -> str:
        text = f"{digest:064x}"
        return f"{self.folder.name}/{text[:2]}/{text}-{place}.kv"

    def _own(self, name: str) -> tuple[int, int] | None:
        """(digest, place) of a path, where it is of this identity."""
        if not name.startswith(self.folder.name):
            return None
        match = _NAME.fullmatch(name.rpartition("/")[2])
        return (int(match[1], 16), int(match[2])) if match else None

    def _enter(self, name: str, used: float, size: int) -> None:
        own = self._own(name)
        with self._lock:
            before = self._files.get(name)
            self.counts.bytes_used += size - (before[1] if before else 0)
            self._files[name] = (used, size)
            if before is None or before[0] != used:
                heapq.heappush(self._oldest, (used, name))
            if own is not None:
                self._places[own[0]] = own[1]
            if len(self._oldest) > 2 * len(self._files) + 1024:
                self._oldest = [(at, file) for file, (at, _) in self._files.items()]
                heapq.heapify(self._oldest)

    def _drop(self, name: str) -> None:
        own = self._own(name)
        with self._lock:
            before = self._files.pop(name, None)
            self.counts.bytes_used -= before[1] if before else 0
            if own is not None:
                self._places.pop(own[0], None)

    def _delete(self, name: str) -> None:
        """Raises OSError where it is not ours to delete."""
        with contextlib.suppress(FileNotFoundError):
            (self._root / name).unlink()
        self._drop(name)

    def _pop_oldest(self) -> str | None:
        with self._lock:
            while self._oldest:
                used, name = heapq.heappop(self._oldest)
                if self._files.get(name, (0.0, 0))[0] == used:
                    return name
        return None


def _remove_stale(folder: Path) -> None:
    """Partial files of processes that were killed."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()
