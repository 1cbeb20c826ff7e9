"""Tensors of a model as torch tensors: the file's float types as they are, quantized ones dequantized to float32."""

from __future__ import annotations

import ctypes

import torch

from engines.native.loader.model_files import ModelFiles
from engines.native.loader.quants import dequantize
from engines.native.loader.tensors import Mapped, TensorInfo

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Weights:
    """Reads by the decoder's own names. A context manager: tensors that are read stay valid after it ends."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files
        self._mapped = Mapped()

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self._mapped.close()
        _return_heap()

    def read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """A copy of tensor `name` in `dtype`, on the CPU."""
        return self._unpacked(self._files.tensors[name]).to(dtype, copy=True)

    def _unpacked(self, info: TensorInfo) -> torch.Tensor:
        data = self._mapped.bytes_of(info)
        if info.type in _FLOATS:
            return torch.frombuffer(data, dtype=_FLOATS[info.type]).view(info.shape)
        return torch.from_numpy(dequantize(data, info.type, info.shape))


def _return_heap() -> None:
    """Give the memory of dequantized copies back to the system: glibc keeps freed pieces (120 MiB for SmolLM2)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # another C library, which has no such call
        return
