"""How a run tells where it stands: lines for people on a terminal, else the platform's job-child protocol.

The protocol is docs/contracts.md, section 8 (one JSON object per line: progress, metric, log; report or error last).
It is written out here because evaluation imports nothing of engines or of the control plane.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol, TextIO

PROTOCOL_VERSION = 1


class Reporter(Protocol):
    def progress(self, value: float, text: str = "") -> None:
        """`value` is the share done, 0 … 1."""

    def log(self, text: str) -> None: ...

    def metric(self, name: str, value: float, step: int | None = None) -> None: ...

    def report(self, data: dict[str, Any], verdict: str) -> None:
        """The end. verdict: "ok", or "failed" where an objective was not met."""

    def error(self, code: str, message: str, hint: str = "") -> None: ...


class Lines:
    """The protocol, a line at a time."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def _send(self, kind: str, **fields: Any) -> None:
        self._out.write(json.dumps({"v": PROTOCOL_VERSION, "type": kind, **fields}) + "\n")
        self._out.flush()

    def progress(self, value: float, text: str = "") -> None:
        self._send("progress", value=round(value, 4), text=text)

    def log(self, text: str) -> None:
        self._send("log", level="info", text=text)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        self._send("metric", name=name, value=value, step=step)

    def report(self, data: dict[str, Any], verdict: str) -> None:
        self._send("report", verdict=verdict, data=data)

    def error(self, code: str, message: str, hint: str = "") -> None:
        self._send("error", code=code, message=message, hint=hint)


class Terminal:
    """For people: one line that is written over, and what stays above it."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._shown = 0

    def _write(self, text: str, *, stays: bool) -> None:
        text = text if stays else text[:118]
        self._out.write("\r" + text.ljust(self._shown) + ("\n" if stays else ""))
        self._out.flush()
        self._shown = 0 if stays else len(text)

    def progress(self, value: float, text: str = "") -> None:
        self._write(f"{value:4.0%}  {text}", stays=False)

    def log(self, text: str) -> None:
        self._write(text, stays=True)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        """Charts are not drawn on a terminal; the level's line has the figures."""

    def report(self, data: dict[str, Any], verdict: str) -> None:
        for line in data.get("lines", []):
            self._write(line, stays=True)

    def error(self, code: str, message: str, hint: str = "") -> None:
        self._write(f"error: {message}" + (f"\n  {hint}" if hint else ""), stays=True)


def reporter(choice: str) -> Reporter:
    """choice: "json", "text" or "auto" (text on a terminal)."""
    text = choice == "text" or (choice == "auto" and sys.stdout.isatty())
    return Terminal() if text else Lines()
