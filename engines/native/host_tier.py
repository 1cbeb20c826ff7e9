"""Host memory beside the KV cache: the blocks of a preempted request wait there until it runs again, and blocks of the
prefix cache that the device has no room for are kept in what is left of it, the least recently used overwritten first.

Copying n tokens out and in again costs 2 n × bytes per token / bandwidth; computing them again costs n × seconds per
token of prefill. Both grow with n, the copy has a fixed cost besides, so from some length on copying is cheaper:
`min_tokens`, measured at start (`engines.native.swap_costs`). A victim that is shorter, or for which the host has no
room, is computed again. What goes on to a disk and comes from it passes through here (`engines.native.disk_tier`).
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.native.blocks import BlockPool, Key, Prefix
from engines.native.disk_tier import DiskTier
from engines.native.request import Request
from engines.native.step import Int32


class HostTier:
    """Says which host block is whose; the runner copies. Owners are requests that wait.

    num_blocks: 0 = there is no host memory, and every victim is computed again. caching: keep evicted blocks. disk: the
    tier below, of a host that caches.
    """

    def __init__(
        self, num_blocks: int, block_size: int, min_tokens: int, *, caching: bool = False, disk: DiskTier | None = None
    ) -> None:
        self.caching = caching and num_blocks > 0
        # Block 0 is never handed out.
        self._pool = BlockPool(max(num_blocks, 1) + 1, block_size, caching=self.caching)
        self._min_tokens = min_tokens if num_blocks else 1 << 62
        self._owners: dict[int, Request] = {}
        self._leaving: list[tuple[Request, list[tuple[int, int]]]] = []  # to be copied by the next step
        self._spilled: dict[int, tuple[int, Key]] = {}  # host block → evicted block, to be copied by the next step, too
        self.swaps = 0
        self.disk = disk if self.caching else None
        if self.disk is not None:
            self.disk.attach(self._pool, self._take)

    @property
    def used(self) -> int:
        """Host blocks with an owner, or behind the fence."""
        return self._pool.used

    def _take(self, count: int) -> list[int]:
        """Host blocks for new content, owned. The caller checks that there are so many."""
        blocks = self._pool.allocate(count)
        for block in blocks:
            self._spilled.pop(block, None)  # what was planned to be kept there is not
        return blocks

    def keep(self, victim: Request, tokens: int) -> bool:
        """Plan to copy its first `tokens` tokens, all of them computed, if that is worth it and there is room. Before
        it loses its blocks; no step may be on its way that writes them."""
        count = -(-tokens // self._pool.block_size)
        if tokens < self._min_tokens or not 0 < count <= self._pool.available:
            return False
        victim.host_blocks, victim.host_tokens = self._take(count), tokens
        self._owners[victim.id] = victim
        self._leaving.append((victim, list(zip(victim.blocks, victim.host_blocks, strict=False))))
        self.swaps += 1
        return True

    def departures(
        self, above: BlockPool, step: int, *, idle: bool = False
    ) -> tuple[list[tuple[int, int]], list[Request]]:
        """What step `step`, launched now, has to copy from the pool `above`: (block, host block), and whose they are.
        idle: there is no pass that would wait for it."""
        leaving, self._leaving = self._leaving, []
        copies = {host: block for _, pairs in leaving for block, host in pairs}
        if self.disk is not None:
            copies |= self.disk.copies(above, step, idle=idle)
        spilled, self._spilled = self._spilled, {}
        copies |= {host: block for host, (block, _) in spilled.items()}
        if self.disk is not None:
            self._pool.touch(list(spilled), step)  # no thread may write what a copy is on its way to
            self.disk.spilled(step, [(host, key) for host, (_, key) in spilled.items()])
        return [(block, host) for host, block in copies.items()], [request for request, _ in leaving]

    def release(self, request: Request, fence: int) -> None:
        """It runs again, has ended, or is to be computed again. Its host blocks are free once step `fence` is settled,
        which may read or write them."""
        if self.disk is not None:
            self.disk.forget(request)
        if self._owners.pop(request.id, None) is None:
            return
        self._leaving = [entry for entry in self._leaving if entry[0] is not request]
        self._pool.release(request.host_blocks, fence)
        request.host_blocks, request.host_tokens = [], 0

    def failed(self, copies: Sequence[tuple[int, int]], leaving: Sequence[Request], step: int) -> None:
        """What step `step` copied can't be trusted: forget it."""
        for request in leaving:
            self.release(request, step)
        for _, host in copies:
            self._pool.forget(host)
        if self.disk is not None:
            self.disk.failed(step)

    # Cached blocks

    def evicted(self, block: int, key: Key, prefix: Prefix) -> None:
        """As `LowerTier`: keep it, where something of the host is free."""
        if len(key[1]) < 4 * self._pool.block_size:
            return  # not full: of use to those who go on from it now
        host = self._pool.find(key)
        spills = host is None and self._pool.available > 0
        if host is not None:
            self._pool.touch([host], 0)
        elif spills:
            self._spilled[self._pool.adopt(key, prefix)] = block, key
        if self.disk is not None:
            self.disk.evicted(key, spills)

    def registered(self, block: int, key: Key, prefix: Prefix) -> None:
        """As `LowerTier`."""
        if self.disk is not None and isinstance(prefix, int):
            self.disk.registered(block, key, prefix)

    def identity(self, key: Key) -> Prefix | None:
        return self._pool.identity(key) if self.disk is None else self.disk.identity(key)

    def awaits(self, request: Request, above: BlockPool, cached: Sequence[int]) -> bool:
        """Whether the disk is about to bring what follows `cached`, blocks of `above` that begin it."""
        return self.disk is not None and self.disk.awaits(request, above, cached)

    def cached(self, prefix: Prefix, token_ids: Int32) -> list[int]:
        """Host blocks of the full blocks that begin `token_ids`, after the prefix of that identity, where they are
        worth a copy. The last token is left out: it must be computed for its logits."""
        blocks = self._pool.match_after(prefix, token_ids[:-1])[0]
        return blocks if len(blocks) * self._pool.block_size >= self._min_tokens else []

    def hold(self, blocks: list[int], fence: int) -> None:
        """Step `fence` reads them."""
        self._pool.touch(blocks, fence)

    def settle(self, step: int) -> None:
        self._pool.settle(step)
        if self.disk is not None:
            self.disk.settle(step)

    @property
    def restless(self) -> bool:
        """Blocks wait to be copied for the disk."""
        return self.disk is not None and self.disk.restless

    def close(self) -> None:
        """Wait for what is on its way to the disk, and take no more."""
        if self.disk is not None:
            self.disk.close()

    def check(self) -> list[str]:
        """What is wrong, one sentence each."""
        problems = [f"host memory: {problem}" for problem in self._pool.check(self._tables())]
        running = [request.id for request in self._owners.values() if request.row >= 0 or request.finish is not None]
        if running:
            problems.append(f"requests {running} hold host blocks and do not wait")
        return problems

    def heal(self) -> list[str]:
        return self._pool.heal(self._tables())

    def _tables(self) -> list[list[int]]:
        below = [] if self.disk is None else self.disk.tables()
        return [*(request.host_blocks for request in self._owners.values()), *below]
