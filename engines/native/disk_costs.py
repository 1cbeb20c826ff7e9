"""From how many tokens on a prefix is better read from the disk than computed again, measured on the disk that serves.

    computing again   recompute_s × n
    reading           fixed_s + (disk_s + swap_s) × n     from the file to the host, from there to the device

As in `engines.native.swap_costs`, whose figures for the device are taken (out and in: a little too much). The files
that are timed are written for it and dropped from the system's memory before they are read, as far as it lets go.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass

from engines.native.disk_store import BlockStore
from engines.native.swap_costs import NEVER, SwapCosts

PROBED_BYTES = 32 * 2**20
PROBED_BLOCKS = (2, 32)
REPEATS = 3


@dataclass(frozen=True, slots=True)
class DiskCosts:
    """Seconds. fixed_s: per load; disk_s: per token, from the disk to the host; device: the way on, and computing."""

    fixed_s: float
    disk_s: float
    device: SwapCosts

    @property
    def crossover(self) -> int:
        """Tokens from which reading is cheaper; NEVER where it isn't, or where copying from the host never is."""
        if self.device.crossover >= NEVER:
            return NEVER
        way = SwapCosts(self.fixed_s + self.device.fixed_s, self.disk_s + self.device.swap_s, self.device.recompute_s)
        return way.crossover


def measure(
    store: BlockStore,
    view: Callable[[int], memoryview],
    hosts: int,
    block_size: int,
    readers: Executor,
    device: SwapCosts,
) -> DiskCosts:
    """On host blocks 1 … `hosts` that nobody uses yet, which are written over. Raises OSError."""
    least, most = PROBED_BLOCKS
    count = max(1, min(most, hosts, max(least, PROBED_BYTES // store.file_bytes)))
    digests = [int.from_bytes(os.urandom(32), "big") for _ in range(count)]
    try:
        for place, digest in enumerate(digests):
            store.probe(digest, place, view(place + 1))
        one = min(_seconds(store, view, digests[:1], readers) for _ in range(REPEATS))
        many = min(_seconds(store, view, digests, readers) for _ in range(REPEATS))
    finally:
        for digest in digests:
            with contextlib.suppress(OSError):
                store.remove(digest)
        store.counts.read_bytes = 0  # for no request
    block_s = max(0.0, many - one) / (count - 1) if count > 1 else one
    return DiskCosts(max(0.0, one - block_s), block_s / block_size, device)


def _seconds(store: BlockStore, view: Callable[[int], memoryview], digests: Sequence[int], readers: Executor) -> float:
    for digest in digests:
        store.cool(digest)
    begun = time.perf_counter()
    wait([readers.submit(store.read, digest, view(place + 1)) for place, digest in enumerate(digests)])
    return time.perf_counter() - begun
