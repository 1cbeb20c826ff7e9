"""A job's log: a file in the run folder while it runs, a blob in the store afterwards. Byte offsets stay valid."""

from __future__ import annotations

import codecs
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tursiops.core import store
from tursiops.jobs import orphans
from tursiops.jobs.models import ENDED

if TYPE_CHECKING:
    from tursiops.jobs.models import Job

MAX_BYTES = 32 * 1024 * 1024
PAGE = 256 * 1024


def live_path(job: Job) -> Path:
    return orphans.folder() / f"{job.pk}.log"


class LiveLog:
    """The log that a running job writes; a retry goes on where the last attempt ended."""

    def __init__(self, job: Job) -> None:
        self.path = live_path(job)
        if job.log_blob_id and not self.path.exists():
            _bring_back(job.log_blob_id, self.path)
        self._file = self.path.open("ab")
        self._full = self._file.tell() >= MAX_BYTES

    def write(self, text: str) -> None:
        if self._full:
            return
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._file.write("".join(f"{stamp} {line}\n" for line in text.splitlines()).encode("utf-8", "replace"))
        self._file.flush()
        if self._file.tell() >= MAX_BYTES:
            self._full = True
            self._file.write(f"{stamp} (the log has reached {MAX_BYTES:,} bytes; the rest is left out)\n".encode())

    def keep(self) -> str:
        """Close the log and put it into the store. Returns its digest."""
        self._file.close()
        return store.put_file(self.path, link=False).sha256

    def close(self) -> None:
        self._file.close()


def _bring_back(sha256: str, path: Path) -> None:
    try:
        with store.open_blob(sha256) as past, path.open("wb") as file:
            shutil.copyfileobj(past, file)
    except store.StoreError as error:  # the last attempt ran on another node
        path.write_text(f"(the log of the attempts before is not here: {error.message})\n")


@dataclass(frozen=True)
class Page:
    text: str
    next: int  # byte offset to ask for next
    ended: bool  # nothing will come after `next`


def read(job: Job, after: int) -> Page:
    """At most PAGE bytes of the log from byte offset `after`, cut at a whole character."""
    data, size = b"", 0
    path = live_path(job)
    if not path.exists() and job.log_blob_id:
        path = store.path_of(job.log_blob_id)
    if path.exists():
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(min(after, size))
            data = file.read(PAGE)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    pending = len(decoder.getstate()[0])
    position = min(after, size) + len(data) - pending
    return Page(text, position, job.state in ENDED and position + pending >= size)
