"""Keeps a snapshot up to date: read at the start, written every few minutes beside the steps, and at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from plugins.speculative.lookahead.snapshot import BadSnapshot, Snapshot, read, write

log = logging.getLogger(__name__)

INTERVAL = 300.0
"""Seconds between two snapshots, unless option `lookahead_snapshot_s` says otherwise."""


class Keeper:
    """folder: None keeps nothing. take: a snapshot of what is there now, made in the caller's thread; its arrays are
    copies, so that a thread of its own can write them."""

    def __init__(self, folder: Path | None, take: Callable[[], Snapshot], interval: float = INTERVAL) -> None:
        self._folder, self._take, self._interval = folder, take, interval
        self._due = time.monotonic() + interval
        self._writer: threading.Thread | None = None

    def read(self, identity: str, classes: int, vocab: int) -> Snapshot | None:
        """What an earlier run has kept. A file that can't be used is left alone, and the log says why."""
        if self._folder is None:
            return None
        try:
            return read(self._folder, identity, classes, vocab)
        except (BadSnapshot, OSError) as error:
            log.warning("lookahead starts cold: the snapshot in %s is not used: %s", self._folder, error)
            return None

    def tick(self) -> None:
        """Called often: writes when it is time."""
        if self._folder is None or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._interval
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=self._write, args=(self._folder, self._take()), daemon=True)
            self._writer.start()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.join()
        if self._folder is not None:
            self._write(self._folder, self._take())

    def _write(self, folder: Path, snapshot: Snapshot) -> None:
        try:
            write(folder, snapshot)
        except OSError as error:
            log.warning("lookahead's snapshot can't be written to %s: %s", folder, error)
