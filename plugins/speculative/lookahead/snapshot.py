"""What is kept between starts, in one file: the stores' text and the counts of what held. Several engines may write to
one folder: the file is the last one's, whole. Little-endian:

    8 bytes   b"TURSLOOK"
    u32       version of this layout
    32 bytes  BLAKE2b of all that follows
    text      identity of model and tokenizer
    u32 n, n × f64, n × f64        guesses of each class that held, and all
    u32 n, n × (text, u64 m, m × i32)   salts, the longest unused first: name, token ids with −1 between documents

(text: u32 bytes, UTF-8). A file that is not whole, or of another model or layout, is left alone with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engines.native.speculation.tree import Int32
from plugins.speculative.lookahead.store import END

NAME = "lookahead.bin"
MAGIC = b"TURSLOOK"
VERSION = 1
CUT_OFF_S = 3600.0
"""Age of a file that nobody writes any more: its process was killed."""
_HEADER = struct.Struct("<8sI32s")


class BadSnapshot(ValueError):
    """The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """hits, trials: of each class of survival. texts: int32 [tokens] of each salt, the longest unused first."""

    identity: str
    hits: list[float]
    trials: list[float]
    texts: list[tuple[str, Int32]]


def write(folder: Path, snapshot: Snapshot) -> None:
    """Whole or not at all: a new file takes the place of the old one. Only its owner may read it: it is what was said.
    Raises OSError."""
    parts = [_text(snapshot.identity), struct.pack("<I", len(snapshot.hits))]
    parts += [np.array(counts, "<f8").tobytes() for counts in (snapshot.hits, snapshot.trials)]
    parts.append(struct.pack("<I", len(snapshot.texts)))
    for salt, tokens in snapshot.texts:
        parts += [_text(salt), struct.pack("<Q", len(tokens)), tokens.astype("<i4", copy=False).tobytes()]
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(part)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in folder.glob(f"{NAME}.*"):
        with contextlib.suppress(FileNotFoundError):  # it is done meanwhile
            if other.stat().st_mtime < time.time() - CUT_OFF_S:
                other.unlink()
    descriptor, name = tempfile.mkstemp(prefix=f"{NAME}.", dir=folder)  # 0600
    new = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(_HEADER.pack(MAGIC, VERSION, digest.digest()))
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / NAME)
    finally:
        new.unlink(missing_ok=True)


def read(folder: Path, identity: str, classes: int, vocab: int) -> Snapshot | None:
    """None where there is no file. classes: of survival, as this version counts them. Raises BadSnapshot, OSError."""
    try:
        raw = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    if len(raw) < _HEADER.size or not raw.startswith(MAGIC):
        raise BadSnapshot("it is no lookahead snapshot")
    _, version, digest = _HEADER.unpack_from(raw)
    if version != VERSION:
        raise BadSnapshot(f"its layout has version {version}; this one reads {VERSION}")
    body = memoryview(raw)[_HEADER.size :]
    if hashlib.blake2b(body, digest_size=32).digest() != digest:
        raise BadSnapshot("its checksum is wrong: it was cut off or changed")
    snapshot = _Reader(body).snapshot()
    if snapshot.identity != identity:
        raise BadSnapshot(f"it is of model {snapshot.identity!r}; this one is {identity!r}")
    if len(snapshot.hits) != classes:
        raise BadSnapshot(f"it counts {len(snapshot.hits)} classes of guesses; this version has {classes}")
    for _, tokens in snapshot.texts:
        if len(tokens) and not END <= int(tokens.min()) <= int(tokens.max()) < vocab:
            raise BadSnapshot(f"it has token ids outside the vocabulary of {vocab}")
    return snapshot


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw


class _Reader:
    """Of a body whose checksum is right."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def snapshot(self) -> Snapshot:
        identity = self._text()
        classes = self._number("<I")
        hits, trials = (np.frombuffer(self._take(8 * classes), "<f8").tolist() for _ in range(2))
        texts = [(self._text(), self._tokens()) for _ in range(self._number("<I"))]
        return Snapshot(identity, hits, trials, texts)

    def _take(self, count: int) -> memoryview:
        self._at += count
        if self._at > len(self._body):
            raise BadSnapshot("it is shorter than it says")
        return self._body[self._at - count : self._at]

    def _number(self, form: str) -> int:
        number: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return number

    def _text(self) -> str:
        return str(self._take(self._number("<I")), "utf-8")

    def _tokens(self) -> Int32:
        return np.frombuffer(self._take(4 * self._number("<Q")), "<i4").astype(np.int32)
