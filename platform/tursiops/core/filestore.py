"""Files known by the SHA-256 of their content, in one folder. Knows nothing of Django: importers run without it.

    <root>/sha256/<first two digits>/<digest>   complete files, never changed
    <root>/noted/<first two digits>/<digest>    their size and time of change when their bytes were last known
    <root>/incoming/<key>/                      what is on its way in; partial downloads are resumed from here

A file appears under its digest by one rename, when all its bytes are there and their digest is known. It may be a hard
link of somebody's file, who may write to it later: what was noted tells that (`altered`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

CHUNK = 4 * 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES}

Progress = Callable[[int], None]
"""Called with the number of bytes done so far."""


class StoreError(Exception):
    """`code`: disk_full, wrong_digest, changed, unreadable, missing."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Stored:
    sha256: str
    size: int  # bytes


class _Note(NamedTuple):
    """A file as it was when its bytes were last known. good: they were those of its digest."""

    size: int  # bytes
    changed_ns: int  # st_mtime_ns
    good: bool


def ignore(done: int) -> None:
    pass


class FileStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, sha256: str) -> Path:
        """Where the bytes lie, or would lie. Raises ValueError for what is not a digest."""
        if not _DIGEST.fullmatch(sha256):
            raise ValueError(f"not a SHA-256 in lower-case hex: {sha256[:80]!r}")
        return self.root / "sha256" / sha256[:2] / sha256

    def incoming(self, key: str) -> Path:
        """A folder for the partial files of one piece of work; survives its failure, for a retry."""
        folder = self.root / "incoming" / key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def has(self, sha256: str) -> bool:
        return self.path_of(sha256).is_file()

    def claim(self, sha256: str, size: int) -> Stored | None:
        """The file if it is here in full already; the garbage collector spares it from now on as if it were new."""
        stored = Stored(sha256, size)
        return stored if self._is_there(stored) else None

    def open(self, sha256: str) -> BinaryIO:
        try:
            return self.path_of(sha256).open("rb")
        except FileNotFoundError:
            raise StoreError("missing", f"file {sha256[:16]}… is not in this node's store") from None

    def put_file(self, path: Path, *, sha256: str = "", link: bool = True, progress: Progress = ignore) -> Stored:
        """Take in the file at `path`: a hard link on the same file system (no second copy), else a copy.

        Raises StoreError: unreadable; changed while it was read; wrong_digest if it is not `sha256`; disk_full.
        """
        try:
            with path.open("rb") as source:
                before = os.fstat(source.fileno())
                if not link or before.st_dev != self._device():
                    return self.put_stream(source, sha256=sha256, size=before.st_size, progress=progress)
                stored = Stored(_digest(source, progress), before.st_size)
                after = os.fstat(source.fileno())
        except OSError as error:
            raise _explain(error, path) from error
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise StoreError("changed", f"{path.name} changed while it was read", "Wait until it is written.")
        _expect(stored, sha256, path.name)
        if self._is_there(stored):
            return stored
        part = self._part()
        try:
            os.link(path, part)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise _explain(error, path) from error
            with path.open("rb") as source:
                return self.put_stream(source, sha256=stored.sha256, size=stored.size, progress=progress)
        self._publish(part, stored, before.st_mtime_ns)  # what is written from now on is seen by `altered`
        return stored

    def put_stream(
        self, source: BinaryIO, *, sha256: str = "", size: int | None = None, progress: Progress = ignore
    ) -> Stored:
        """Copy a stream in, hashing on the way; `size` (bytes) lets a full disk be noticed before the work.

        Raises StoreError (wrong_digest, disk_full, unreadable); no partial file is left then.
        """
        part = self._part()
        digest, done = hashlib.sha256(), 0
        try:
            if size is not None:
                check_space(self.root, size)
            with part.open("xb") as file:
                while chunk := source.read(CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    progress(done)
                file.flush()
                os.fsync(file.fileno())
            stored = Stored(digest.hexdigest(), done)
            _expect(stored, sha256, "the file")
            self._publish(part, stored)
        except OSError as error:
            raise _explain(error, part) from error
        finally:
            part.unlink(missing_ok=True)
        return stored

    def adopt(self, path: Path, sha256: str) -> Stored:
        """Move in a file of our own making, within the store's file system, whose digest is known to be `sha256`."""
        stored = Stored(sha256, path.stat().st_size)
        self._publish(path, stored)
        return stored

    def verify(self, sha256: str) -> bool:
        """True if the bytes are there and still have their digest."""
        try:
            with self.open(sha256) as file:
                return _digest(file, ignore) == sha256
        except StoreError:
            return False

    def altered(self, sha256: str) -> bool:
        """Whether the bytes have become others than were put here. They are read only if size or time of change are
        not those noted. Raises FileNotFoundError."""
        stat = self.path_of(sha256).stat()
        noted = self._noted(sha256)
        if noted is not None and (noted.size, noted.changed_ns) == (stat.st_size, stat.st_mtime_ns):
            return not noted.good
        good = noted is None or self.verify(sha256)  # of a store that noted nothing yet, what is there is believed
        self._note(sha256, _Note(stat.st_size, stat.st_mtime_ns, good))
        return not good

    def remove(self, sha256: str) -> None:
        self.path_of(sha256).unlink(missing_ok=True)
        self._note_path(sha256).unlink(missing_ok=True)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Digest and stat of each complete file. `st_ctime` is when it was last put here."""
        for path in (self.root / "sha256").glob("??/*"):
            try:
                yield path.name, path.stat()
            except FileNotFoundError:
                continue

    def _part(self) -> Path:
        return self.incoming("parts") / uuid.uuid4().hex

    def _device(self) -> int:
        self.root.mkdir(parents=True, exist_ok=True)
        return self.root.stat().st_dev

    def _is_there(self, stored: Stored) -> bool:
        """Whether the file is in the store; marks it as just used, so that the garbage collector spares it."""
        path = self.path_of(stored.sha256)
        try:
            stat = path.stat()
            if stat.st_size != stored.size or self.altered(stored.sha256):
                return False  # cut short by a crash of the machine, or written to: the new one replaces it
            os.utime(path, ns=(time.time_ns(), stat.st_mtime_ns))  # moves st_ctime alone
        except OSError:
            return False
        return True

    def _publish(self, part: Path, stored: Stored, changed_ns: int | None = None) -> None:
        """`changed_ns`: st_mtime_ns when the digest was taken; None: nobody else can write to `part`."""
        path = self.path_of(stored.sha256)
        if self._is_there(stored):
            part.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(part, path)
        changed_ns = path.stat().st_mtime_ns if changed_ns is None else changed_ns
        self._note(stored.sha256, _Note(stored.size, changed_ns, True))

    def _note_path(self, sha256: str) -> Path:
        return self.root / "noted" / sha256[:2] / sha256

    def _noted(self, sha256: str) -> _Note | None:
        try:
            size, changed_ns, good = map(int, self._note_path(sha256).read_text().split())
        except (OSError, ValueError):
            return None
        return _Note(size, changed_ns, bool(good))

    def _note(self, sha256: str, note: _Note) -> None:
        """Where the disk has no room for it, the bytes are read again next time."""
        with contextlib.suppress(OSError):
            path, part = self._note_path(sha256), self._part()
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(f"{note.size} {note.changed_ns} {int(note.good)}")
            os.replace(part, path)


def check_space(folder: Path, size: int) -> None:
    """Raises StoreError if `size` more bytes do not fit on the file system of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if size > free:
        raise StoreError(
            "disk_full",
            f"the file needs {size:,} bytes; the disk of the store has {free:,} free",
            "Free some space, delete versions that nobody uses, or move the data folder (TURSIOPS_DATA_DIR).",
        )


def _digest(source: BinaryIO, progress: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        done += len(chunk)
        progress(done)
    return digest.hexdigest()


def _expect(stored: Stored, sha256: str, name: str) -> None:
    if sha256 and stored.sha256 != sha256:
        raise StoreError(
            "wrong_digest",
            f"{name} has SHA-256 {stored.sha256}, expected {sha256}",
            "The file is damaged or is another one. Fetch it again.",
        )


def _explain(error: OSError, path: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError("disk_full", f"no space left while writing {path.name}", "Free some space and try again.")
    return StoreError("unreadable", f"{path.name}: {error.strerror or error}", "Check that it exists and is readable.")
