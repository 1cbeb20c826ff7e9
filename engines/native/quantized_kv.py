"""Keys and values in 8 bits: what lies in the pools, and how plain torch writes and reads it. `kernels.quantized_keys`
and `kernels.quantized_write` are the same on a GPU.

fp8   e4m3 with one scale per head, known before the first token (`kv_scales`); what is too large is cut off at 448
int8  −127 … 127 with a scale for each token and head, its greatest value over 127, beside the pool

Arithmetic is never in 8 bits: scores take the keys' scales after the product with the query, and probabilities the
values' scales before theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from engines.native.ops.row_views import DecodeGroup

FP8_MOST = 448.0
INT8_MOST = 127.0
LEAST = 1e-12
"""Of a token's greatest value, so that a head of zeros has a scale to divide by."""


@dataclass(slots=True, eq=False)
class QuantizedPool:
    """One layer's K, or its V. values: int8 [B, hk, s, d], of fp8 its bytes; dtype: of what is read.

    A line of each of `planes` belongs to a block: it moves, and is kept, with it. The pool is written in place.
    """

    values: torch.Tensor
    scales: torch.Tensor
    dtype: torch.dtype
    kind: ClassVar[str] = ""

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        raise NotImplementedError  # each of the two kinds has its own

    def write(self, slots: torch.Tensor, x: torch.Tensor) -> None:
        """x [t, hk, d] at `slots`, int64 [t]."""
        raise NotImplementedError  # each of the two kinds has its own

    def rows(self, places: slice | torch.Tensor) -> torch.Tensor:
        """What stands at `places` of the pool, a run of them or int64 [keys] → [1, hk, keys, d]."""
        raise NotImplementedError  # each of the two kinds has its own

    def pages(self, group: DecodeGroup) -> torch.Tensor:
        """The keys of rows with one query each → [hk × rows, keys, d]."""
        raise NotImplementedError  # each of the two kinds has its own

    def _by_head(self) -> torch.Tensor:
        """[hk, B × s, d]; a view where the pool is head-major."""
        return self.values.transpose(0, 1).flatten(1, 2)


class Fp8Pool(QuantizedPool):
    """scales: float32 [hk]."""

    kind = "fp8"

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        return (self.values,)

    def write(self, slots: torch.Tensor, x: torch.Tensor) -> None:
        cut = (x.float() / self.scales[:, None]).clamp_(-FP8_MOST, FP8_MOST)
        _put(self.values, slots, cut.to(torch.float8_e4m3fn).view(torch.int8))

    def rows(self, places: slice | torch.Tensor) -> torch.Tensor:
        return self._read(self._by_head()[:, places])[None]

    def pages(self, group: DecodeGroup) -> torch.Tensor:
        found = group.gathered(self._by_head(), self.shape[2])
        return self._read(found.view(len(self.scales), -1, found.shape[2])).view(found.shape)

    def _read(self, found: torch.Tensor) -> torch.Tensor:
        """Bytes [hk, keys, d]."""
        wide = found.contiguous().view(torch.float8_e4m3fn).to(torch.float32)
        return wide.mul_(self.scales[:, None, None]).to(self.dtype)


class Int8Pool(QuantizedPool):
    """scales: float32 [B, hk, s]."""

    kind = "int8"

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        return self.values, self.scales

    def write(self, slots: torch.Tensor, x: torch.Tensor) -> None:
        x = x.float()
        scales = x.abs().amax(-1).clamp_(min=LEAST) / INT8_MOST
        _put(self.values, slots, (x / scales[..., None]).round_().to(torch.int8))
        _put(self.scales, slots, scales)

    def rows(self, places: slice | torch.Tensor) -> torch.Tensor:
        scales = self.scales.transpose(0, 1).flatten(1)[:, places, None]
        return (self._by_head()[:, places] * scales).to(self.dtype)[None]

    def pages(self, group: DecodeGroup) -> torch.Tensor:
        values = group.gathered(self._by_head(), self.shape[2])
        scales = group.gathered(self.scales.transpose(0, 1).flatten(1)[..., None], self.shape[2])
        return (values * scales).to(self.dtype)


Pool = torch.Tensor | QuantizedPool
"""One layer's K, or its V, as a set of operations keeps it: a tensor [B, hk, s, d], or one in 8 bits."""


def planes(*pools: Pool) -> tuple[torch.Tensor, ...]:
    """All that holds a line for each block, once each: of one layer's K and V."""
    found = [pool.planes if isinstance(pool, QuantizedPool) else (pool,) for pool in pools]
    return tuple({id(plane): plane for each in found for plane in each}.values())


def fixed_scales(layers: Sequence[Sequence[Pool]]) -> list[list[float]]:
    """What all blocks are read with, of each pool that has such; the bytes of a block mean nothing else."""
    return [pool.scales.tolist() for layer in layers for pool in layer if isinstance(pool, Fp8Pool)]


def _put(plane: torch.Tensor, slots: torch.Tensor, x: torch.Tensor) -> None:
    """x [t, hk, …] → plane [B, hk, s, …] at `slots`."""
    if plane.stride(1) > plane.stride(0):  # head-major
        plane.transpose(0, 1).flatten(1, 2).index_copy_(1, slots, x.transpose(0, 1))
    else:
        size = plane.shape[2]
        plane[slots // size, :, slots % size] = x
