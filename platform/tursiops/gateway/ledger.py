"""Requests in flight, in memory-mapped files that outlive a killed process: what it had not billed, the next one bills.

A slot is taken when a request starts, counts what passes, holds the final record at the end, and is freed once that
record lies in Redis or on disk. The pages belong to the kernel, so kill -9 loses nothing; a power cut may.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from tursiops.gateway import records
from tursiops.gateway.locks import lock_or_none

log = structlog.get_logger()

_SLOT = 2048  # bytes; a record is at most about 1,200
_SLOTS = 512  # in one file
_HEAD = struct.Struct("<IIId")  # record bytes (0: free), completion tokens, prompt tokens, time of the last piece
_SIZE = struct.Struct("<I")
_COUNT = struct.Struct("<IId")
_COUNT_AT = _SIZE.size
INTERRUPTED = "gateway_stopped"


class Slot:
    """One request's place. `passed` is on the path of every token; it writes 16 bytes."""

    __slots__ = ("_at", "_count_at", "_map", "_owner")

    def __init__(self, owner: Ledger, pages: mmap.mmap, at: int) -> None:
        self._owner = owner
        self._map = pages
        self._at = at
        self._count_at = at + _COUNT_AT

    def write(self, entry: records.UsageEntry) -> None:
        """`entry` with status 0 is a request that still runs. Its size is written last: a torn one reads as free."""
        record = records.encode(entry)
        if len(record) > _SLOT - _HEAD.size:
            return
        start = self._at + _HEAD.size
        _SIZE.pack_into(self._map, self._at, 0)
        self._map[start : start + len(record)] = record
        self.passed(entry.completion_tokens, entry.prompt_tokens)
        _SIZE.pack_into(self._map, self._at, len(record))

    def passed(self, completion_tokens: int, prompt_tokens: int) -> None:
        _COUNT.pack_into(self._map, self._count_at, completion_tokens, prompt_tokens, time.time())

    def free(self) -> None:
        _SIZE.pack_into(self._map, self._at, 0)
        self._owner.take_back(self)


class Ledger:
    """Owns this process's files; each is locked for as long as the process lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[tuple[Path, int, mmap.mmap]] = []
        self._free: list[Slot] = []

    def open(self, entry: records.UsageEntry) -> Slot:
        """A slot that holds `entry`."""
        if not self._free:
            pages = self._new_pages()
            self._free.extend(Slot(self, pages, number * _SLOT) for number in reversed(range(_SLOTS)))
        slot = self._free.pop()
        slot.write(entry)
        return slot

    def take_back(self, slot: Slot) -> None:
        self._free.append(slot)

    def _new_pages(self) -> mmap.mmap:
        """Of one more file; of plain memory where the disk has no room, so that the serving goes on."""
        path = self._folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.open"
        made = path.with_suffix(".new")  # it gets the name that others look for once it is locked
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                os.posix_fallocate(file, 0, _SLOT * _SLOTS)  # a page that the disk has no room for would be a SIGBUS
                pages = mmap.mmap(file, _SLOT * _SLOTS)
                made.rename(path)
            except OSError:
                os.close(file)
                made.unlink(missing_ok=True)
                raise
        except OSError as error:
            log.error("gateway.ledger_in_memory", error=str(error), hint="Requests cut by a kill won't be billed.")
            return mmap.mmap(-1, _SLOT * _SLOTS)
        self._files.append((path, file, pages))
        return pages

    def close(self) -> None:
        """End in order: what is still open stays on disk for the next process."""
        for path, file, pages in self._files:
            if not any(_slots(pages)):
                path.unlink(missing_ok=True)
            pages.close()
            os.close(file)
        self._files.clear()

    def left_behind(self) -> Iterator[tuple[Path, list[records.UsageEntry]]]:
        """Files of processes that died, each locked while it is looked at, with the records to be billed.

        The caller stores the records and unlinks the file before it takes the next.
        """
        for path in sorted(self._folder.glob("*.open")):
            with lock_or_none(path) as file:
                if file is not None:
                    yield path, list(_slots(file.read()))


def _slots(pages: bytes | mmap.mmap) -> Iterator[records.UsageEntry]:
    """The records of a file; those of requests that were cut off are made whole from their counters."""
    for at in range(0, len(pages) - _SLOT + 1, _SLOT):
        size, completion_tokens, prompt_tokens, last = _HEAD.unpack_from(pages, at)
        if not 0 < size <= _SLOT - _HEAD.size:
            continue
        start = at + _HEAD.size
        try:
            entry = records.decode(bytes(pages[start : start + size]))
        except msgspec.DecodeError as error:
            log.error("gateway.ledger_slot_refused", error=str(error))
            continue
        if entry.status == 0:
            entry = msgspec.structs.replace(
                entry,
                status=502,
                error_code=INTERRUPTED,
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                duration_ms=round(max(0.0, last - entry.started_at) * 1000, 2),
            )
        yield entry
