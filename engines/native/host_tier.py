"""Host memory beside the KV cache: the blocks of a preempted request wait there until it runs again.

Copying n tokens out and in again costs 2 n × bytes per token / bandwidth; computing them again costs n × seconds per
token of prefill. Both grow with n, the copy has a fixed cost besides, so from some length on copying is cheaper:
`min_tokens`, measured at start (`engines.native.swap_costs`). A victim that is shorter, or for which the host has no
room, is computed again.
"""

from __future__ import annotations

from engines.native.blocks import BlockPool
from engines.native.request import Request


class HostTier:
    """Says which host block is whose; the runner copies. Owners are requests that wait.

    num_blocks: 0 = there is no host memory, and every victim is computed again.
    """

    def __init__(self, num_blocks: int, block_size: int, min_tokens: int) -> None:
        self._pool = BlockPool(max(num_blocks, 1) + 1, block_size, caching=False)  # block 0 is never handed out
        self._min_tokens = min_tokens if num_blocks else 1 << 62
        self._owners: dict[int, Request] = {}
        self._leaving: list[tuple[Request, list[tuple[int, int]]]] = []  # to be copied by the next step
        self.swaps = 0

    @property
    def used(self) -> int:
        """Host blocks with an owner, or behind the fence."""
        return self._pool.used

    def keep(self, victim: Request, tokens: int) -> bool:
        """Plan to copy its first `tokens` tokens, all of them computed, if that is worth it and there is room. Before
        it loses its blocks; no step may be on its way that writes them."""
        count = -(-tokens // self._pool.block_size)
        if tokens < self._min_tokens or not 0 < count <= self._pool.available:
            return False
        victim.host_blocks, victim.host_tokens = self._pool.allocate(count), tokens
        self._owners[victim.id] = victim
        self._leaving.append((victim, list(zip(victim.blocks, victim.host_blocks, strict=False))))
        self.swaps += 1
        return True

    def departures(self) -> tuple[list[tuple[int, int]], list[Request]]:
        """What the step that is launched now has to copy: (block, host block), and whose they are."""
        leaving, self._leaving = self._leaving, []
        return [pair for _, pairs in leaving for pair in pairs], [request for request, _ in leaving]

    def release(self, request: Request, fence: int) -> None:
        """It runs again, has ended, or is to be computed again. Its host blocks are free once step `fence` is settled,
        which may read or write them."""
        if self._owners.pop(request.id, None) is None:
            return
        self._leaving = [entry for entry in self._leaving if entry[0] is not request]
        self._pool.release(request.host_blocks, fence)
        request.host_blocks, request.host_tokens = [], 0

    def settle(self, step: int) -> None:
        self._pool.settle(step)

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
        return [request.host_blocks for request in self._owners.values()]
