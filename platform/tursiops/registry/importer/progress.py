"""Bytes done as progress lines, a few times a second, with the speed of the last seconds."""

from __future__ import annotations

import time
from collections import deque

from engines.api import Channel, size_text

EVERY_S = 0.3
WINDOW_S = 5.0


class Progress:
    """Counts bytes over all files of one import."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.total = 0  # bytes, of all files
        self._finished = 0  # bytes, of the files before this one
        self._name = ""
        self._said_at = 0.0
        self._seen: deque[tuple[float, int]] = deque()

    def log(self, text: str) -> None:
        self._channel.log(text)

    def begin(self, name: str) -> None:
        self._name = name

    def end(self, size: int) -> None:
        """The current file, of `size` bytes, is done."""
        self._finished += size
        self(0)

    def __call__(self, done: int) -> None:
        """`done` bytes of the current file are there."""
        now = time.monotonic()
        position = self._finished + done
        if now - self._said_at < EVERY_S and position < self.total:
            return
        self._said_at = now
        self._seen.append((now, position))
        while self._seen[0][0] < now - WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()
        share = position / self.total if self.total else 0.0
        self._channel.progress(
            min(share, 1.0), f"{self._name}: {size_text(position)} of {size_text(self.total)}{self._speed()}"
        )

    def _speed(self) -> str:
        (t0, b0), (t1, b1) = self._seen[0], self._seen[-1]
        return f", {size_text(int((b1 - b0) / (t1 - t0)))}/s" if t1 > t0 and b1 > b0 else ""
