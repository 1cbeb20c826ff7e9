"""JSON-lines protocol between the control plane and a child process that does heavy work.

The parent writes one JSON object (the spec) to the child's stdin and closes it. The child writes one JSON
object per line to stdout; everything on stderr is free text for the log. The last line is a `report` or an
`error`. A child that ends without either has crashed.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

PROTOCOL_VERSION = 1


class ChildError(Exception):
    """A failure that the child explains. `code` is stable, `hint` says what to do next."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class Channel:
    """The child's side: typed lines to stdout, flushed one by one."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def _send(self, kind: str, **fields: Any) -> None:
        self._out.write(json.dumps({"v": PROTOCOL_VERSION, "type": kind, **fields}) + "\n")
        self._out.flush()

    def progress(self, value: float, text: str = "") -> None:
        """`value` is the share done, 0…1."""
        self._send("progress", value=round(value, 4), text=text)

    def log(self, text: str, level: str = "info") -> None:
        self._send("log", level=level, text=text)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        self._send("metric", name=name, value=value, step=step)

    def report(self, data: dict[str, Any], verdict: str = "ok") -> None:
        """End of the work. `verdict` is "ok", or "failed" where a gate was not met (no error)."""
        self._send("report", verdict=verdict, data=data)

    def error(self, code: str, message: str, hint: str = "") -> None:
        self._send("error", code=code, message=message, hint=hint)


def read_spec(source: TextIO | None = None) -> dict[str, Any]:
    """The spec that the parent sent. Raises ChildError if its version is not ours."""
    spec: dict[str, Any] = json.load(source or sys.stdin)
    version = spec.get("v", PROTOCOL_VERSION)
    if version not in (PROTOCOL_VERSION, PROTOCOL_VERSION - 1):
        raise ChildError(
            "protocol_version", f"spec has protocol version {version}, this child speaks {PROTOCOL_VERSION}"
        )
    return spec
