"""A tensor in a file: what it is and where its bytes lie. Both formats describe their content this way."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """shape: outermost dimension first, as in torch; type: the file's own name of it ("Q4_1", "BF16")."""

    name: str
    shape: tuple[int, ...]
    type: str
    path: Path
    offset: int  # bytes from the start of the file
    nbytes: int

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class Mapped:
    """Private maps of the model's files (copy-on-write: torch wants writable memory); opened at the first read."""

    def __init__(self) -> None:
        self._maps: dict[Path, mmap.mmap] = {}

    def bytes_of(self, info: TensorInfo) -> memoryview:
        """The tensor's bytes as they lie in the file, without a copy."""
        if info.path not in self._maps:
            with info.path.open("rb") as file:
                self._maps[info.path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return memoryview(self._maps[info.path])[info.offset : info.offset + info.nbytes]

    def passed(self, info: TensorInfo) -> None:
        """Its bytes were copied: they need not count as our memory any more (they stay in the page cache)."""
        mapped = self._maps.get(info.path)
        first = -(-info.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = info.offset + info.nbytes - first
        if mapped is not None and length >= mmap.PAGESIZE and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED, first, length // mmap.PAGESIZE * mmap.PAGESIZE)

    def close(self) -> None:
        for mapped in self._maps.values():
            try:
                mapped.close()
            except BufferError:  # a tensor still views it: the map goes when the tensor goes
                continue
        self._maps.clear()
