"""The user's corpus, a UTF-8 text file, read in pieces that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from engines.protocol import ChildError

LINE = 1 << 16  # characters; a longer line is cut
BATCH = 1 << 20  # characters that are handed on at once

Progress = Callable[[float], None]


def batches(path: Path, progress: Progress) -> Iterator[list[str]]:
    """Lines without their ends, empty ones left out; a batch holds about 1 MB. `progress` gets the share read, 0…1.

    Raises ChildError("bad_corpus") for bytes that are no UTF-8.
    """
    size = max(path.stat().st_size, 1)
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        lines: list[str] = []
        held = done = 0
        try:
            while line := file.readline(LINE):
                done += len(line.encode())
                if stripped := line.rstrip("\r\n"):
                    lines.append(stripped)
                    held += len(stripped)
                if held >= BATCH:
                    yield lines
                    progress(min(done / size, 1.0))
                    lines, held = [], 0
        except UnicodeDecodeError as error:
            raise ChildError(
                "bad_corpus",
                f"corpus: it is no UTF-8 text (after about {done:,} bytes: {error.reason})",
                "Save it as UTF-8, one document or paragraph on a line.",
            ) from error
        if lines:
            yield lines
    progress(1.0)
