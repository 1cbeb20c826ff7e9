"""Reader of GGUF files (versions 2 and 3): metadata and the table of tensors, every extent checked against the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engines.native.loader.errors import BadModel
from engines.native.loader.quants import BY_NAME, FORMATS
from engines.native.loader.tensors import TensorInfo

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GgufFile:
    """metadata: key → scalar, string, or list (numpy array for numbers)."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


class _Cursor:
    """Reads values one after the other; running past the end is `truncated`, naming what was being read."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path = data, path
        self.at = 0
        self.reading = "the header"

    def take(self, count: int) -> int:
        """Start of the next `count` bytes, which are then passed."""
        start, end = self.at, self.at + count
        if end > len(self._data):
            raise BadModel(
                "truncated",
                f"{self._path.name} ends inside {self.reading}: {end:,} bytes are needed, the file has "
                f"{len(self._data):,}",
                "fetch the file again and compare its sha256 with the published one",
            )
        self.at = end
        return start

    def scalar(self, layout: str) -> Any:
        return struct.unpack_from(layout, self._data, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        length = self.scalar("<Q")
        start = self.take(length)
        return self._data[start : start + length].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise BadModel("unknown_type", f"{self._path.name}: {self.reading} has the unknown value type {kind}")
        return self.scalar(_SCALARS[kind])

    def _array(self) -> Any:
        kind, length = self.scalar("<I"), self.scalar("<Q")
        if kind in _SCALARS:
            layout = np.dtype(_SCALARS[kind])
            return np.frombuffer(self._data, layout, length, self.take(length * layout.itemsize)).copy()
        return [self.value(kind) for _ in range(length)]


def read_gguf(path: Path) -> GgufFile:
    """Raises BadModel: bad_magic, truncated, unknown_type, wrong_shape; the message names key or tensor."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < 24 or file.read(4) != b"GGUF":
            raise BadModel("bad_magic", f"{path.name} is not a GGUF file: it does not begin with GGUF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(_Cursor(data, path), path, size)


def _parse(cursor: _Cursor, path: Path, size: int) -> GgufFile:
    cursor.take(4)
    version = cursor.scalar("<I")
    if version not in (2, 3):
        raise BadModel("bad_magic", f"{path.name} is GGUF version {version}; versions 2 and 3 can be read")
    tensor_count, key_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for index in range(key_count):
        cursor.reading = f"metadata key {index + 1} of {key_count}"
        key = cursor.string()
        cursor.reading = f"metadata key {key!r}"
        metadata[key] = cursor.value(cursor.scalar("<I"))
    if metadata.get("split.count", 1) > 1:
        raise BadModel(
            "unknown_type",
            f"{path.name} is one of {metadata['split.count']} parts (key split.count)",
            "join the parts first: llama-gguf-split --merge",
        )
    headers = [_tensor_header(cursor, index, tensor_count) for index in range(tensor_count)]
    alignment = int(metadata.get("general.alignment", 32))
    if alignment <= 0:
        raise BadModel("unknown_type", f"{path.name}: key general.alignment is {alignment}")
    start = (cursor.at + alignment - 1) // alignment * alignment
    tensors = {}
    for name, shape, kind, offset in headers:
        if name in tensors:
            raise BadModel("wrong_shape", f"{path.name} holds tensor {name} twice")
        tensors[name] = _located(path, size, name, shape, kind, start + offset)
    return GgufFile(path, metadata, tensors)


def _tensor_header(cursor: _Cursor, index: int, count: int) -> tuple[str, tuple[int, ...], int, int]:
    cursor.reading = f"the header of tensor {index + 1} of {count}"
    name = cursor.string()
    cursor.reading = f"the header of tensor {name}"
    dimensions = cursor.scalar("<I")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise BadModel("wrong_shape", f"tensor {name} has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are possible")
    shape = tuple(cursor.scalar("<Q") for _ in range(dimensions))
    return name, shape[::-1], cursor.scalar("<I"), cursor.scalar("<Q")


def _located(path: Path, size: int, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorInfo:
    if kind not in FORMATS:
        raise BadModel(
            "unknown_type",
            f"tensor {name} has the quantization type {kind}, which cannot be read",
            f"types that can be read: {', '.join(BY_NAME)}",
        )
    form = FORMATS[kind]
    elements = 1
    for length in shape:
        elements *= length
    if elements == 0 or shape[-1] % form.values:
        raise BadModel(
            "wrong_shape", f"tensor {name} has shape {list(shape)}: rows of {form.name} come in {form.values}s"
        )
    nbytes = elements // form.values * form.bytes
    if offset + nbytes > size:
        raise BadModel(
            "truncated",
            f"tensor {name} lies at bytes {offset:,} to {offset + nbytes:,} of {path.name}, but the file has {size:,}",
            "fetch the file again and compare its sha256 with the published one",
        )
    return TensorInfo(name, shape, form.name, path, offset, nbytes)
