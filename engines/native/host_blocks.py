"""The host's side of swapping: one contiguous piece of host memory per KV block, all layers in it.

On a GPU the memory is pinned and copies run on a stream of their own, behind the passes launched before them; passes
launched after them wait for them on the device. The host never waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

STAGED_BYTES = 64 * 2**20
"""What lies gathered on the device at a time, between the layers' pools and the host."""

Pairs = list[tuple[int, int]]


class HostBlocks:
    """Bytes [host blocks + 1, bytes of a block]; host block 0 is never used, as in the device's pool.

    layers: pools [blocks, …] on one device, of any shape and dtype; a KV block is the same line of all of them. A pool
    that stands twice, as K and as V, is one. more: bytes of a block that `add` will be given.
    """

    def __init__(self, layers: Sequence[tuple[torch.Tensor, ...]], host_blocks: int, more: int = 0) -> None:
        pools = self._pools = list({id(pool): pool for layer in layers for pool in layer}.values())
        self._sizes = [pool[0].numel() * pool.element_size() for pool in pools]
        device = pools[0].device
        self._cuda = device.type == "cuda"
        self._more, size = more, sum(self._sizes) + more
        self._memory = torch.empty(host_blocks + 1, size, dtype=torch.uint8, pin_memory=self._cuda)
        self._stream = torch.cuda.Stream(device) if self._cuda else None  # type: ignore[no-untyped-call] # torch's
        self._device = device
        self._at_once = max(1, STAGED_BYTES // size)

    def add(self, pool: torch.Tensor) -> bool:
        """One more pool, before the first copy that matters; False where its bytes were not asked for, and it stays
        behind."""
        size = pool[0].numel() * pool.element_size()
        if size > self._more:
            return False
        self._pools.append(pool)
        self._sizes.append(size)
        self._more -= size
        return True

    def view(self, host: int) -> memoryview:
        """The bytes of a host block, writable. For a thread that knows that no copy is on its way to or from it."""
        return self._memory[host].numpy().data

    def swap_out(self, pairs: Pairs) -> None:
        """Copy (block, host block)."""
        with self._apart():
            for part in self._parts(pairs, host=1):
                index = self._index([block for block, _ in part])
                lines = [pool[index].flatten(1).contiguous().view(torch.uint8) for pool in self._pools]
                staged = torch.cat([*lines, lines[0].new_zeros(len(part), self._more)], 1)
                for first, last in _runs([host for _, host in part]):
                    host = part[first][1]
                    self._memory[host : host + last - first].copy_(staged[first:last], non_blocking=True)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy (host block, block)."""
        with self._apart():
            for part in self._parts(pairs, host=0):
                staged = torch.empty(len(part), self._memory.shape[1], dtype=torch.uint8, device=self._device)
                for first, last in _runs([host for host, _ in part]):
                    host = part[first][0]
                    staged[first:last].copy_(self._memory[host : host + last - first], non_blocking=True)
                index = self._index([block for _, block in part])
                pieces = torch.split(staged, [*self._sizes, self._more], 1)
                for pool, piece in zip(self._pools, pieces, strict=False):  # what no pool is for yet is left
                    pool[index] = piece.contiguous().view(pool.dtype).view(len(part), *pool.shape[1:])

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        main = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            yield
        main.wait_stream(self._stream)

    def _parts(self, pairs: Pairs, host: int) -> Iterator[Pairs]:
        """In order of host blocks, so that neighbours go in one copy; as many as are staged at once."""
        ordered = sorted(pairs, key=lambda pair: pair[host])
        for at in range(0, len(ordered), self._at_once):
            yield ordered[at : at + self._at_once]

    def _index(self, blocks: list[int]) -> torch.Tensor:
        index = torch.tensor(blocks, dtype=torch.int64, pin_memory=self._cuda)
        return index.to(self._device, non_blocking=True)


def _runs(blocks: list[int]) -> Iterator[tuple[int, int]]:
    """Spans [first, last) of `blocks` that count up by one."""
    first = 0
    for at in range(1, len(blocks) + 1):
        if at == len(blocks) or blocks[at] != blocks[at - 1] + 1:
            yield first, at
            first = at
