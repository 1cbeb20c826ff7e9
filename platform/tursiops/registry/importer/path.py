"""A file or folder on this machine. Hard links where the store is on the same file system, so nothing is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.protocol import ChildError
from tursiops.core.filestore import FileStore
from tursiops.registry.importer.choose import POOLING, choose, stored_name
from tursiops.registry.importer.progress import Progress


def check(text: str, roots: list[str]) -> Path:
    """The real path of what `text` names. `roots` are the folders that it may lie in; none: anywhere.

    Raises ChildError (bad_path, outside, missing_file).
    """
    given = Path(text)
    if not given.is_absolute() or "\0" in text:
        raise ChildError("bad_path", f"{text!r} is not an absolute path", "Give the whole path, from / on.")
    try:
        real = given.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ChildError(
            "missing_file", f"there is no {text}", "Check the path on the machine of the worker."
        ) from error
    if roots and not any(real.is_relative_to(Path(root).resolve()) for root in roots):
        raise ChildError(
            "outside",
            f"{text} is outside the folders that models may be registered from",
            f"Allowed (TURSIOPS_MODEL_PATHS): {', '.join(roots)}.",
        )
    if not real.is_dir() and not real.is_file():
        raise ChildError("bad_path", f"{text} is neither a file nor a folder")
    return real


def fetch(spec: dict[str, Any], store: FileStore, progress: Progress) -> dict[str, Any]:
    real = check(spec["ref"], spec["roots"])
    folder = real if real.is_dir() else real.parent
    names = [path.name for path in folder.iterdir()] if real.is_dir() else [real.name]
    names += [str(path.relative_to(folder)) for path in folder.glob(POOLING)] if real.is_dir() else []
    choice = choose(names, wanted="" if real.is_dir() or real.suffix != ".gguf" else real.name)
    paths = {name: _inside(folder, name, spec["roots"]) for name in choice.names}
    progress.total = sum(path.stat().st_size for path in paths.values())
    files = []
    for name, path in paths.items():
        progress.begin(name)
        stored = store.put_file(path, progress=progress)
        progress.end(stored.size)
        files.append({"name": stored_name(name), "sha256": stored.sha256, "size": stored.size})
    return {"files": files, "format": choice.format, "revision": "", "license": ""}


def _inside(folder: Path, name: str, roots: list[str]) -> Path:
    """The real file behind a name in the folder. A link may lead within the allowed folders and nowhere else."""
    real = (folder / name).resolve()
    allowed = [Path(root).resolve() for root in roots] or [folder, *_hub_cache(folder)]
    if not any(real.is_relative_to(root) for root in allowed):
        raise ChildError(
            "outside", f"{name} is a link that leads out of {folder}", "Put the file itself into the folder."
        )
    if not real.is_file():
        raise ChildError("missing_file", f"{name} is not a file")
    return real


def _hub_cache(folder: Path) -> list[Path]:
    """The hub's own cache links models--x--y/snapshots/<revision>/<name> to models--x--y/blobs/<digest>."""
    repository = folder.parent.parent
    return [repository] if folder.parent.name == "snapshots" and repository.name.startswith("models--") else []
