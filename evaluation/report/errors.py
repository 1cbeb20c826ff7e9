"""What can't be read."""

from __future__ import annotations

from pathlib import Path


class ReportError(ValueError):
    """A folder or file that holds no result that can be read; the message says what to give instead."""

    code = "unreadable_result"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
