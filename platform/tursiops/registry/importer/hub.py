"""A repository of the Hugging Face hub, or of a mirror that speaks its API."""

from __future__ import annotations

import re
import shutil
import urllib.error
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from engines.protocol import ChildError
from tursiops.core.filestore import FileStore, check_space
from tursiops.registry.importer.choose import choose, stored_name
from tursiops.registry.importer.download import download
from tursiops.registry.importer.http import NETWORK_ERRORS, Client
from tursiops.registry.importer.progress import Progress

_REF = re.compile(r"(?P<id>(?:[\w.-]+/)?[\w.-]+)(?::(?P<file>[\w./ +-]+\.gguf))?", re.ASCII)


@dataclass(frozen=True)
class RemoteFile:
    name: str
    size: int  # bytes
    sha256: str  # of LFS files; empty for small ones
    git_sha1: str  # git's blob id, of small ones


def parse_ref(ref: str) -> tuple[str, str]:
    """`owner/name` or `owner/name:file.gguf` → (id, file or ""). Raises ChildError."""
    match = _REF.fullmatch(ref)
    if match is None or ".." in ref:
        raise ChildError("bad_ref", f"{ref!r} is no hub id", "Write it as owner/name, or owner/name:file.gguf.")
    return match["id"], match["file"] or ""


def fetch(spec: dict[str, Any], store: FileStore, progress: Progress) -> dict[str, Any]:
    repository, wanted = parse_ref(spec["ref"])
    client = Client(spec["endpoint"], spec["token"])
    commit, remote, license_name = _listing(client, repository, spec["revision"] or "main")
    choice = choose(remote, wanted)
    progress.log(f"{repository} at {commit}: {', '.join(choice.names)}")
    todo = [remote[name] for name in choice.names]
    progress.total = sum(file.size for file in todo)
    incoming = store.incoming(spec["key"])
    here = sum(path.stat().st_size for path in incoming.iterdir())
    check_space(store.root, max(0, progress.total - here))
    files = []
    for file in todo:
        progress.begin(file.name)
        try:
            stored = download(
                client, f"/{repository}/resolve/{quote(commit)}/{quote(file.name)}", file, store, incoming, progress
            )
        except urllib.error.HTTPError as error:
            raise _refusal(error, repository, file.name) from error
        progress.end(stored.size)
        files.append({"name": stored_name(file.name), "sha256": stored.sha256, "size": stored.size})
    shutil.rmtree(incoming)
    return {"files": files, "format": choice.format, "revision": commit, "license": license_name}


def _listing(client: Client, repository: str, revision: str) -> tuple[str, dict[str, RemoteFile], str]:
    """Commit, files by name, licence."""
    path = f"/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
    try:
        answer = client.json(path)
    except urllib.error.HTTPError as error:
        raise _refusal(error, repository, revision) from error
    except NETWORK_ERRORS as error:
        raise ChildError(
            "unreachable",
            f"{client.endpoint} can't be reached: {getattr(error, 'reason', None) or error or type(error).__name__}",
            "Check the network and HF_ENDPOINT.",
        ) from error
    try:
        files = {item["rfilename"]: _remote_file(item) for item in answer["siblings"]}
        card = answer.get("cardData") or {}
        license_name = card.get("license") if isinstance(card.get("license"), str) else ""
        return str(answer["sha"]), files, license_name or ""
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ChildError(
            "bad_answer", f"{client.endpoint} does not speak the hub's API ({error!r})", "Check HF_ENDPOINT."
        ) from error


def _remote_file(item: dict[str, Any]) -> RemoteFile:
    lfs = item.get("lfs") or {}
    return RemoteFile(
        name=item["rfilename"],
        size=int(lfs["size"] if "size" in lfs else item["size"]),
        sha256=str(lfs.get("sha256") or "").lower(),
        git_sha1="" if lfs else str(item.get("blobId") or ""),
    )


def _refusal(error: urllib.error.HTTPError, repository: str, what: str) -> ChildError:
    said = error.headers.get("X-Error-Code", "") if error.headers else ""
    if said == "GatedRepo" or (error.code in (401, 403) and said != "RepoNotFound"):
        return ChildError(
            "gated",
            f"{repository} is gated or private ({error.code})",
            "Accept its terms on the hub, then set HF_TOKEN to a token that may read it.",
        )
    if said == "RevisionNotFound":
        return ChildError("unknown_revision", f"{repository} has no revision {what}", "Name a branch, tag or commit.")
    if said == "EntryNotFound":
        return ChildError("unknown_file", f"{repository} has no file {what}")
    if said == "RepoNotFound" or error.code == 404:
        return ChildError(
            "unknown_repository",
            f"the hub knows no model {repository} at {what}",
            "Check the name, capitals too; a private one needs HF_TOKEN.",
        )
    return ChildError("hub_error", f"the hub answered {error.code} for {repository}", "Try again later.")
