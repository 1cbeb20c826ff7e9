"""Files that belong to whoever holds their lock; the lock ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def private(path: str, flags: int) -> int:
    """An opener for files that only their owner may read."""
    return os.open(path, flags, 0o600)


@contextmanager
def lock_or_none(path: Path) -> Iterator[BinaryIO | None]:
    """The file, open for reading and locked for the block; None where somebody has it, or has removed it."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, with its lock
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield None if os.fstat(file.fileno()).st_nlink == 0 else file
