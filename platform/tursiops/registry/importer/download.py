"""One file over HTTP into the store: hashed on the way, resumed after a cut, checked at the end.

The partial file lies in the import's incoming folder and survives a failure, so that a retry goes on from there.
"""

from __future__ import annotations

import hashlib
import os
import time
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.api import ChildError, size_text
from tursiops.core.filestore import CHUNK, FileStore, Stored
from tursiops.registry.importer.http import NETWORK_ERRORS, Client
from tursiops.registry.importer.progress import Progress

if TYPE_CHECKING:
    from tursiops.registry.importer.hub import RemoteFile

TRIES = 5  # in a row without a new byte
BACKOFF_S = 0.5  # doubled each time
READ = 256 * 1024


def download(
    client: Client, url: str, file: RemoteFile, store: FileStore, incoming: Path, progress: Progress
) -> Stored:
    """Raises ChildError (interrupted, wrong_digest, disk_full) or HTTPError for the server's refusal."""
    here = store.claim(file.sha256, file.size) if file.sha256 else None
    if here is not None:
        return here
    part = incoming / f"{hashlib.sha256(file.name.encode()).hexdigest()[:16]}.part"
    tries = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if before != file.size or not part.exists():
                _fetch_rest(client, url, part, file, progress)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
            cause: Exception = error
        except NETWORK_ERRORS as error:
            cause = error
        except OSError as error:
            raise ChildError(
                "disk_full" if error.errno in (28, 122) else "unreadable",
                f"{file.name}: {error.strerror}",
                "Free some space, then retry: the part that is here is kept.",
            ) from error
        now = part.stat().st_size if part.exists() else 0
        tries = 1 if now > before else tries + 1
        if tries >= TRIES:
            raise ChildError(
                "interrupted",
                f"{file.name} broke off at {size_text(now)} of {size_text(file.size)}: {cause}",
                "Retry: it goes on from there.",
            ) from cause
        progress.log(f"{file.name}: broke off at {now:,} bytes ({cause}); going on")
        time.sleep(BACKOFF_S * 2**tries)
    return _checked(part, file, store)


def _fetch_rest(client: Client, url: str, part: Path, file: RemoteFile, progress: Progress) -> None:
    """Append what is missing to the partial file. Raises ConnectionError if the server stops early."""
    have = part.stat().st_size if part.exists() else 0
    if have > file.size:  # no part of this file
        part.unlink()
        have = 0
    with client.open(url, {"Range": f"bytes={have}-"} if have else {}) as response:
        if have and not _goes_on_at(response, have):
            have = 0
        with part.open("ab" if have else "wb") as out:
            done = have
            while chunk := response.read(READ):
                out.write(chunk)
                done += len(chunk)
                if done > file.size:
                    raise ChildError("wrong_size", f"{file.name}: the server sends more than {file.size:,} bytes")
                progress(done)
            out.flush()
            os.fsync(out.fileno())
    if done < file.size:
        raise ConnectionError("the server closed the connection")


def _goes_on_at(response: Any, have: int) -> bool:
    """Whether the answer is the range that was asked for; a server may send the whole file instead."""
    return response.status == 206 and str(response.headers.get("Content-Range", "")).startswith(f"bytes {have}-")


def _checked(part: Path, file: RemoteFile, store: FileStore) -> Stored:
    sha256, git = hashlib.sha256(), hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    with part.open("rb") as source:
        while chunk := source.read(CHUNK):
            sha256.update(chunk)
            git.update(chunk)
    digest = sha256.hexdigest()
    wrong = (file.sha256 and file.sha256 != digest) or (file.git_sha1 and file.git_sha1 != git.hexdigest())
    if wrong:
        part.unlink()
        raise ChildError(
            "wrong_digest",
            f"{file.name} has SHA-256 {digest}, the hub says {file.sha256 or 'git ' + file.git_sha1}",
            "It was damaged on the way, or the mirror has other content. Retry fetches it again.",
        )
    return store.adopt(part, digest)
