"""One child process that speaks engines.protocol, in a process group of its own. Knows nothing of jobs or Django.

The parent's thread calls `read()` in a loop and gets what the child said; between calls it looks after its lease.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from engines.protocol import PROTOCOL_VERSION

TERM_GRACE_S = 5.0
MAX_LINE = 4 * 1024 * 1024  # bytes; a longer line is no protocol line
_DRAIN_S = 1.0  # a grandchild may hold the pipes open after the child's end


class Child:
    def __init__(self, argv: list[str], spec: dict[str, Any], *, env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self.last_lines: deque[str] = deque(maxlen=20)  # of free text, to explain a crash
        self._ended_at = 0.0
        self._buffers = {"stdout": b"", "stderr": b""}
        self._selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        for name, pipe in (("stdout", self.process.stdout), ("stderr", self.process.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        threading.Thread(target=self._feed, args=[spec], daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def done(self) -> bool:
        """The child has ended and said all."""
        if self.process.poll() is None:
            return False
        self._ended_at = self._ended_at or time.monotonic()
        return not self._selector.get_map() or time.monotonic() > self._ended_at + _DRAIN_S

    def read(self, timeout: float) -> list[dict[str, Any]]:
        """What the child said within `timeout` seconds: protocol lines, and free text as log lines."""
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.05))
            return []
        said: list[dict[str, Any]] = []
        for key, _ in self._selector.select(timeout):
            data = os.read(key.fd, 1 << 16)
            lines = self._lines(key.data, data)
            if not data:
                self._selector.unregister(key.fileobj)
            said += [parse_line(line) if key.data == "stdout" else _text(line) for line in lines]
        self.last_lines.extend(item["text"] for item in said if item["type"] == "log")
        return said

    def stop(self, grace_s: float = TERM_GRACE_S) -> None:
        """SIGTERM to the whole group, SIGKILL to what is left of it after `grace_s` seconds."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace_s)
        self.close()

    def close(self) -> None:
        """Kill what the child left in its group, and free the pipes."""
        self._signal(signal.SIGKILL)
        self.process.wait()
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _feed(self, spec: dict[str, Any]) -> None:
        """In a thread: a child that does not read must not block its parent."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it ended before it had read all
            self.process.stdin.write(json.dumps({"v": PROTOCOL_VERSION, **spec}).encode())
            self.process.stdin.close()

    def _lines(self, name: str, data: bytes) -> list[bytes]:
        *lines, rest = (self._buffers[name] + data).split(b"\n")
        if rest and (not data or len(rest) > MAX_LINE):
            lines, rest = [*lines, rest[:MAX_LINE]], b""
        self._buffers[name] = rest
        return [line for line in lines if line.strip()]


def _text(line: bytes) -> dict[str, Any]:
    return {"type": "log", "level": "info", "text": line.decode("utf-8", "replace").rstrip()}


def parse_line(line: bytes) -> dict[str, Any]:
    """A protocol line as a dict with valid fields; anything else as a log line."""
    try:
        said = json.loads(line)
    except ValueError:
        return _text(line)
    if not isinstance(said, dict) or not _valid(said):
        return _text(line)
    return said


def _valid(said: dict[str, Any]) -> bool:
    match said.get("type"):
        case "progress":
            return _number(said.get("value")) and isinstance(said.get("text", ""), str)
        case "metric":
            step = said.get("step")
            return (
                isinstance(said.get("name"), str)
                and _number(said.get("value"))
                and (step is None or isinstance(step, int))
            )
        case "log" | "error":
            said["text" if said["type"] == "log" else "message"] = str(said.get("text", said.get("message", "")))
            return True
        case "report":
            return isinstance(said.get("data"), dict) and said.get("verdict") in ("ok", "failed")
    return False


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
