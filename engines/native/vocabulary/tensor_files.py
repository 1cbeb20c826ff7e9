"""Writing safetensors a tensor at a time, hashed on the way: no more than one tensor is in memory."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.native.loader.safetensors import read_header

CHUNK = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """dtype: safetensors' name ("F32"). chunks: the bytes, row-major, little-endian; called once."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    chunks: Callable[[], Iterator[bytes | memoryview]]


def write(path: Path, entries: Sequence[Entry], metadata: dict[str, str], wrote: Callable[[int], None]) -> str:
    """SHA-256 of the file, which appears under its name when it is whole. `wrote` gets the bytes of each chunk."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [offset, offset + entry.nbytes],
        }
        offset += entry.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:

        def put(data: bytes | memoryview) -> None:
            file.write(data)
            digest.update(data)

        put(struct.pack("<Q", len(text)) + text)
        for entry in entries:
            begun = file.tell()
            for chunk in entry.chunks():
                put(chunk)
                wrote(len(chunk))
            if file.tell() - begun != entry.nbytes:
                raise ValueError(f"tensor {entry.name} has {file.tell() - begun} bytes, not {entry.nbytes}")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return digest.hexdigest()


def entries_of(path: Path) -> tuple[list[Entry], dict[str, str]]:
    """The tensors of a file as they are, whatever their types, in the order of their data; and its metadata."""
    header, start = read_header(path, path.stat().st_size)
    metadata = header.pop("__metadata__", {})
    ordered = sorted(header.items(), key=lambda item: item[1]["data_offsets"][0])
    return [_as_it_is(path, start, name, about) for name, about in ordered], metadata


def _as_it_is(path: Path, start: int, name: str, about: dict[str, Any]) -> Entry:
    begin, end = about["data_offsets"]

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(start + begin)
            left = end - begin
            while left and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    return Entry(name, about["dtype"], tuple(about["shape"]), end - begin, chunks)
