"""Keeps a snapshot up to date: read at the start, written every few minutes beside the steps, and at the end.

Engines that share a folder share the file, and the last to write is right: one that has seen nothing new does not, or
an idle one that ends last would put what it began with in the place of what the others have learned.
"""

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
        self._kept: Facts | None = None  # of what was read or written last

    def read(self, identity: str, classes: int, vocab: int) -> Snapshot | None:
        """What an earlier run has kept. A file that can't be used is left alone, and the log says why."""
        if self._folder is None:
            return None
        try:
            found = read(self._folder, identity, classes, vocab)
            self._kept = None if found is None else _facts(found)
            return found
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
        facts = _facts(snapshot)
        if facts == self._kept:
            return
        try:
            write(folder, snapshot)
            self._kept = facts
        except OSError as error:
            log.warning("lookahead's snapshot can't be written to %s: %s", folder, error)


Facts = tuple[tuple[float, ...], tuple[float, ...], tuple[tuple[str, int], ...]]
"""Guesses that held and all, salts and their tokens: where these are as they were, nothing was learned."""


def _facts(snapshot: Snapshot) -> Facts:
    """A copy: counts that were read go on being counted."""
    texts = tuple((salt, len(tokens)) for salt, tokens in snapshot.texts)
    return tuple(snapshot.hits), tuple(snapshot.trials), texts
