"""Tensors of a model as torch tensors: the file's float types as they are, quantized ones dequantized to float32 (or as
they are: `Weights.quantized`).

A tensor goes from the mapped file straight into its place, on whichever device, converted on the way; no copy of it is
made beside that one. Of a part of a tensor only the part is read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch

from engines.native.loader.model_files import ModelFiles
from engines.native.loader.quants import dequantize
from engines.native.loader.staging import Staging
from engines.native.loader.tensors import Mapped, TensorInfo
from engines.native.quant import reader
from engines.native.quant.weight import QuantizedWeight

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BAND = 2**20
"""Values that are dequantized, or turned over, at once."""
_ALL = slice(None)


class Weights:
    """Reads by the decoder's own names. A context manager: tensors that are read stay valid after it ends."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files
        self._mapped = Mapped()
        self._staging: Staging | None = None  # made with the first tensor that goes to a GPU

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self._staging = None
        self._mapped.close()
        _return_heap()

    def read(
        self, name: str, dtype: torch.dtype, device: torch.device | str = "cpu", *, rows: slice = _ALL
    ) -> torch.Tensor:
        """A copy of tensor `name`, or of some of its rows, in `dtype` on `device`."""
        shape = list(self._files.tensors[name].shape)
        shape[0] = len(range(*rows.indices(shape[0])))
        target = torch.empty(shape, dtype=dtype, device=device)
        self.into(name, target, rows=rows)
        return target

    def into(self, name: str, target: torch.Tensor, *, rows: slice = _ALL, columns: slice = _ALL) -> None:
        """Write tensor `name` over `target`, in its dtype and on its device.

        rows, columns: of which part (of a matrix), as a rank of tensor parallelism has one; of the file only these are
        read. The target may be any view: a part of a merged weight, or a transposed one. On a GPU it is there for what
        the current stream does afterwards.
        """
        info = self._files.tensors[name]
        turned = target.device.type == "cpu" and not target.is_contiguous() and target.dtype != _FLOATS.get(info.type)
        for first, part in self._parts(name, rows, turned):
            if columns != _ALL:
                part = part[:, columns]
            place = target if len(part) == len(target) else target[first : first + len(part)]
            if target.device.type == "cuda":
                self._staging = self._staging or Staging(target.device)
                self._staging.copy(part, place)
            else:
                place.copy_(part.to(target.dtype) if turned else part)
        self._passed(name)

    def quantized(self, name: str) -> QuantizedWeight:
        """Matrix `name`, one of `ModelFiles.quantized`, as the file keeps it; on the CPU. Raises BadModel for content
        that no writer of its layout makes."""
        weight = reader.read(self._files.quantized[name], self._mapped.bytes_of)
        self._passed(name)
        return weight

    def kv_scales(self, layer: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Of keys and of values, float32 [1] or [kv_heads]; None where the files have none."""
        pair = self._files.kv_scales.get(layer)
        if pair is None:
            return None
        keys, values = (reader.tensor_of(info, self._mapped.bytes_of(info)).float().reshape(-1) for info in pair)
        return keys.clone(), values.clone()

    def _passed(self, name: str) -> None:
        stored = self._files.quantized.get(name)
        for info in [self._files.tensors[name]] if stored is None else stored.parts.values():
            self._mapped.passed(info)

    def lent(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """Tensor `name` for somebody who copies it: as it lies in the file where that is `dtype`. It may be written
        over (the file is not), and must not be kept: its memory is the page cache's."""
        info = self._files.tensors[name]
        if _FLOATS.get(info.type) is not dtype:
            return self.read(name, dtype)
        return torch.frombuffer(self._mapped.bytes_of(info), dtype=dtype).view(info.shape)

    def _parts(self, name: str, rows: slice, in_bands: bool) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, counted from the first asked for; tensor), whole or in bands that follow each other."""
        info, stored = self._files.tensors[name], self._files.quantized.get(name)
        if stored is not None and stored.layout != "gguf":  # whose blocks are dequantized where they lie
            weight = reader.read(stored, self._mapped.bytes_of)
            yield from (weight if rows == _ALL else weight.rows(rows)).bands()
        else:
            yield from self._bands(info, rows, in_bands)

    def _bands(self, info: TensorInfo, rows: slice, in_bands: bool) -> Iterator[tuple[int, torch.Tensor]]:
        data = self._mapped.bytes_of(info)
        count, *inner = info.shape
        start, stop, _ = rows.indices(count)
        width = info.nbytes // count
        step = max(1, _BAND * count // info.elements) if in_bands or info.type not in _FLOATS else count
        for first in range(start, stop, step):
            last = min(first + step, stop)
            band, shape = data[first * width : last * width], (last - first, *inner)
            if info.type in _FLOATS:
                yield first - start, torch.frombuffer(band, dtype=_FLOATS[info.type]).view(shape)
            else:
                yield first - start, torch.from_numpy(dequantize(band, info.type, shape))


def _return_heap() -> None:
    """Give the memory of dequantized copies back to the system: glibc keeps freed pieces (120 MiB for SmolLM2)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # another C library, which has no such call
        return
