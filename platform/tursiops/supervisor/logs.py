"""What the children say: a file per process, rotated, and the terminal when it is wanted there."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import deque
from pathlib import Path

LIMIT = 8 * 1024 * 1024  # bytes of one file; two older ones are kept
KEPT = 2
COLOURS = {"broker": 90, "web": 36, "gateway": 35, "controller": 33, "node": 32, "beat": 34}


class ProcessLog:
    """`<logs>/<name>.log`. Written by the supervisor alone, so that rotation loses no line."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.path = folder / f"{name}.log"
        self.tail: deque[str] = deque(maxlen=12)
        self.follow = False
        self._file = self._open()
        self._rest = b""
        colour = COLOURS.get(name, 37)
        plain = f"{name:<10} "
        self._prefix = f"\x1b[{colour}m{plain}\x1b[0m" if sys.stdout.isatty() else plain

    def write(self, data: bytes) -> None:
        """Never fails: on a full disk the words are lost, but their process goes on."""
        with contextlib.suppress(OSError):
            if self._file.closed:  # there was no room for a new one
                self._file = self._open()
            self._file.write(data)
            if self._file.tell() > LIMIT:
                self._rotate()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LIMIT // 64 :]  # a process that never ends its line can't fill our memory
        for line in lines:
            self._say(line.decode("utf-8", "replace").rstrip())

    def note(self, text: str) -> None:
        """The supervisor's own word on this process."""
        self.write(f"--- {text} ---\n".encode())

    def close(self) -> None:
        self._file.close()

    def _open(self) -> io.FileIO:
        """Unbuffered: what could not be written must not be tried again, and again."""
        return self.path.open("ab", buffering=0)

    def _say(self, line: str) -> None:
        self.tail.append(line)
        if self.follow:
            print(self._prefix + line, flush=True)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number - 1}") if number > 1 else self.path
            if older.exists():
                os.replace(older, self.path.with_name(f"{self.path.name}.{number}"))
        self._file = self._open()
