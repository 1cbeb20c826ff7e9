"""The file store of this node, and the rows that tell which node holds which blob."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import ForeignObjectRel, ProtectedError

from tursiops.core.filestore import FileStore, Progress, Stored, StoreError, ignore
from tursiops.core.models import Blob, BlobReplica

__all__ = ["Collected", "StoreError", "collect_garbage", "open_blob", "path_of", "put_file", "put_stream", "register"]

PARTIAL_LIFETIME_S = 7 * 86400


def local() -> FileStore:
    return FileStore(Path(settings.STORE_DIR))


def put_file(path: Path, *, link: bool = True, sha256: str = "", progress: Progress = ignore) -> Blob:
    """Raises StoreError; see FileStore.put_file."""
    return _rows(local().put_file(path, link=link, sha256=sha256, progress=progress))


def put_stream(stream: BinaryIO, *, sha256: str = "") -> Blob:
    """Raises StoreError; see FileStore.put_stream."""
    return _rows(local().put_stream(stream, sha256=sha256))


def register(sha256: str, size: int) -> Blob:
    """Rows for a file that a child has put into this node's store. Raises StoreError if it isn't there in full."""
    path = path_of(sha256)
    if path.stat().st_size != size:
        raise StoreError("wrong_size", f"{sha256[:16]}… has {path.stat().st_size} bytes in the store, expected {size}")
    return _rows(Stored(sha256, size))


def path_of(sha256: str) -> Path:
    """Where the bytes lie on this node. Raises StoreError if they don't, or have become others."""
    path = local().path_of(sha256)
    if not path.is_file():
        raise StoreError(
            "missing",
            f"file {sha256[:16]}… is not in the store of node {settings.NODE_NAME}",
            "Import the version again, or copy the file from a node that has it.",
        )
    if local().altered(sha256):
        raise StoreError(
            "wrong_digest",
            f"file {sha256[:16]}… in the store of node {settings.NODE_NAME} was written to after it was registered: "
            "its bytes have another SHA-256",
            "Import the version again, from a file that nobody writes to.",
        )
    return path


def open_blob(sha256: str) -> BinaryIO:
    """Raises StoreError."""
    return local().open(sha256)


def verify(sha256: str) -> bool:
    """True if this node's bytes are there and still have their digest."""
    return local().verify(sha256)


def _rows(stored: Stored) -> Blob:
    blob, _ = Blob.objects.get_or_create(sha256=stored.sha256, defaults={"size": stored.size})
    BlobReplica.objects.get_or_create(blob=blob, node_name=settings.NODE_NAME)
    return blob


@dataclass(frozen=True)
class Collected:
    files: int
    bytes: int


def collect_garbage(*, older_than: float) -> Collected:
    """Delete this node's files that no row refers to and that were put here before `older_than` (unix seconds).

    Rows go first: a file without a row is found again by the next run, a row without a file would be a lie.
    """
    store = local()
    files = size = 0
    for sha256, stat in store.files():
        if stat.st_ctime >= older_than or not _forget(sha256):
            continue
        store.remove(sha256)
        files, size = files + 1, size + stat.st_size
    for folder in (store.root / "incoming").glob("*"):
        if folder.stat().st_mtime < time.time() - PARTIAL_LIFETIME_S:
            shutil.rmtree(folder, ignore_errors=True)
    return Collected(files, size)


def _forget(sha256: str) -> bool:
    """Drop this node's replica row, and the blob's with its last one; False if something refers to the blob."""
    try:
        with transaction.atomic():
            blob = Blob.objects.select_for_update().filter(pk=sha256).first()
            if blob is None:
                return True
            if _referred_to(blob):
                return False
            BlobReplica.objects.filter(blob=blob, node_name=settings.NODE_NAME).delete()
            if not blob.replicas.exists():
                blob.delete()
    except (IntegrityError, ProtectedError):  # a reference came in between
        return False
    return True


def _referred_to(blob: Blob) -> bool:
    relations = [
        field
        for field in Blob._meta.get_fields(include_hidden=True)  # hidden: related_name="+"
        if isinstance(field, ForeignObjectRel) and field.related_model is not BlobReplica
    ]
    return any(item.related_model._base_manager.filter(**{item.field.name: blob}).exists() for item in relations)
