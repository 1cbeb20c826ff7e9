"""What the bytes of a KV block depend on beside its tokens, as one value: blocks that outlive a process are only taken
by one that would have computed the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

COMPUTING = ("models", "layers", "ops", "kernels", "loader", "quant")
"""Packages of this engine whose code decides what stands in the cache …"""
HANDLING = ("runner.py", "decode_graph.py", "state.py", "host_blocks.py", "kv_cache.py", "quantized_kv.py")
"""… and files that say how it lies there."""


@cache
def code() -> str:
    """Digest of their source, so that no release reads what another one meant differently. Hex."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    computing = [path for package in COMPUTING for path in (here / package).rglob("*.py")]
    for path in sorted([*computing, *(here / name for name in HANDLING)]):
        digest.update(f"{path.relative_to(here)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def files(paths: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """File name → digest of its content, hex. A digest that is `known` holds as long as size and time of modification
    stay (they are part of the result); any other file is read, at about 1 GB/s. Raises OSError."""
    found = {}
    for name, path in sorted(paths.items()):
        status = Path(path).stat()
        if name in known:
            found[name] = f"{known[name]} {status.st_size} {status.st_mtime_ns}"
        else:
            with open(path, "rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def identity(facts: Mapping[str, Any]) -> bytes:
    """32 bytes. `facts`: plain values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
