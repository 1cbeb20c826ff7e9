"""The operations of a CPU for pools of keys and values in 8 bits: only how a pool is read and written is another."""

from __future__ import annotations

import torch

from engines.native.ops.row_views import DecodeGroup
from engines.native.ops.strict_ops import StrictOps
from engines.native.ops.torch_ops import TorchOps
from engines.native.quantized_kv import QuantizedPool


class QuantizedKvOps(TorchOps):
    def _rows(self, cache: QuantizedPool, places: slice | torch.Tensor) -> torch.Tensor:
        return cache.rows(places)

    def _pages(self, cache: QuantizedPool, group: DecodeGroup) -> torch.Tensor:
        return cache.pages(group)

    def _write(self, cache: QuantizedPool, slots: torch.Tensor, x: torch.Tensor) -> None:
        cache.write(slots, x)


class StrictQuantizedKvOps(QuantizedKvOps, StrictOps):
    """A token is rounded by itself, and read back the same whoever reads it."""
