"""What an installation that was cut off leaves in an environment, so that the next one doesn't build on it.

pip believes a package that has its metadata. One that was being unpacked when pip was killed, or the disk was full,
may have them as well. Standard library only.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path


def forget_half_installed(venv: Path) -> list[str]:
    """Removes the metadata of every package that lacks files, so that pip installs it anew. Their names."""
    found = []
    for folder in sorted(venv.glob("lib/python3*/site-packages/*.dist-info")):
        if not complete(metadata.Distribution.at(folder)):
            shutil.rmtree(folder)
            found.append(folder.name.split("-")[0])
    return found


def complete(package: metadata.Distribution) -> bool:
    """Is every file there that its record names, in full? pip writes its own name last but for the record."""
    if not package.read_text("RECORD") or not package.read_text("INSTALLER"):
        return False
    for file in package.files or []:
        if file.suffix == ".pyc":
            continue  # Python writes these again by itself
        try:
            size = Path(str(package.locate_file(file))).stat().st_size
        except OSError:
            return False
        if file.size is not None and size < file.size:
            return False
    return True
