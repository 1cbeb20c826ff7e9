"""What an installation that was cut off leaves in an environment, so that the next one doesn't build on it.

pip believes a package that has its metadata. One that was being unpacked when pip was killed, or the disk was full,
may have them as well. Standard library only.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from pathlib import Path


def forget_half_installed(venv: Path, ours: set[str]) -> list[str]:
    """Removes the metadata of each package of `ours` (normalized names) that lacks files, so that pip installs it
    anew. Their names. To be called only after an installation of ours was cut off: others change files on purpose."""
    found = []
    for folder in sorted(venv.glob("lib/python3*/site-packages/*.dist-info")):
        name = normalized(folder.name.split("-")[0])
        if name in ours and not complete(folder):
            shutil.rmtree(folder)
            found.append(name)
    return found


def normalized(name: str) -> str:
    """As package names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def complete(dist_info: Path) -> bool:
    """Is every file there that its record names, in full? pip writes its own name last but for the record."""
    try:
        named = (dist_info / "INSTALLER").stat().st_size > 0
        return named and all((dist_info.parent / path).stat().st_size >= size for path, size in _record(dist_info))
    except (OSError, ValueError, csv.Error):  # not there, or not text: power was lost
        return False


def _record(dist_info: Path) -> Iterator[tuple[str, int]]:
    """(path, size; 0 where none is said) of each file but compiled ones, which Python writes again by itself. Not by
    importlib.metadata, which from Python 3.12 on leaves out the files that are missing."""
    lines = list(csv.reader((dist_info / "RECORD").read_text("utf-8").splitlines()))
    if not lines:
        raise ValueError("an empty record")
    for path, _, size in lines:
        if not path.endswith(".pyc"):
            yield path, int(size or 0)
