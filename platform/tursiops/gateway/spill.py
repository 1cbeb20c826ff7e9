"""Append-only files of usage records on disk. A file is locked while its gateway writes or reads it back; the lock
ends with the process, so that another gateway can bring back what a dead one left."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from tursiops.gateway.locks import lock_or_none, private


class Spill:
    """Bounded by `limit` bytes over all files of the folder. One record a line; a torn last line is left out."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._writer: FileIO | None = None  # without a buffer: what it has not written, it has not taken

    def files(self) -> list[Path]:
        return sorted(self._folder.glob("*.jsonl"))

    def append(self, batch: list[bytes]) -> int:
        """Write records; returns how many the limit had room for. Raises OSError where the disk takes none of them."""
        room = self._limit - sum(path.stat().st_size for path in self.files())
        count = 0
        for record in batch:
            room -= len(record) + 1
            if room < 0:
                break
            count += 1
        if count:
            self._write(b"\n".join(batch[:count]) + b"\n")
        return count

    def _write(self, data: bytes) -> None:
        """All of `data` or nothing."""
        file = self._writer or self._begin()
        end = file.tell()
        try:
            written = file.write(data) or 0
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(file.fileno(), end)
            file.seek(end)
            raise

    def _begin(self) -> FileIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        made = path.with_suffix(".new")  # it gets the name that others look for once it is locked
        file = open(made, "xb", buffering=0, opener=private)  # noqa: SIM115 - closed by `close`
        fcntl.flock(file, fcntl.LOCK_EX)
        made.rename(path)
        self._writer = file
        return file

    def close(self) -> None:
        """End the file that is written; the next `append` begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def claimed(self, path: Path) -> Iterator[list[bytes] | None]:
        """The records of a file that nobody writes, locked for the block; None where somebody has it."""
        with lock_or_none(path) as file:
            yield None if file is None else [line[:-1] for line in file if line.endswith(b"\n")]
