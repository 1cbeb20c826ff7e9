"""What of a request is computed already, and by whom the rest is being computed: on the device, on the host, or by a
request before it that begins alike."""

from __future__ import annotations

from engines.native.blocks import BlockPool, Key
from engines.native.host_tier import HostTier
from engines.native.request import Request
from engines.native.step import Int32


class Prefixes:
    """Looks only; the scheduler takes the blocks."""

    def __init__(self, pool: BlockPool, host: HostTier) -> None:
        self._pool, self._host = pool, host
        self._computing: dict[Key, Request] = {}

    def cached(self, request: Request) -> list[int]:
        """Blocks of the device's prefix cache that begin it: full ones, and of a fork one that has all that is left but
        the last token."""
        if request.params.prompt_logprobs >= 0:  # needs the logits of every prompt token
            return []
        blocks, prefix = self._pool.match(request.token_ids, request.salt)
        if request.params.forks:
            tail = request.token_ids[len(blocks) * self._pool.block_size : -1]
            block = self._pool.find(self._pool.key(prefix, tail)) if len(tail) else None
            if block is not None:
                blocks.append(block)
        return blocks

    def _full(self, cached: list[int]) -> list[int]:
        """`cached` without a last, unfilled block."""
        key = self._pool.key_of(cached[-1]) if cached else None
        return cached[:-1] if key is not None and len(key[1]) < 4 * self._pool.block_size else cached

    def keep_tail(self, request: Request, token_ids: Int32) -> None:
        """A fork ends, with its last step committed: make its last, unfilled block findable. token_ids: those computed.
        What it went on from itself is of no more use, except to those of its round that still wait."""
        pool = self._pool
        if not request.params.forks or not pool.caching:
            return
        tail = token_ids[request.registered * pool.block_size :]
        key: Key | None
        if len(tail):
            key, block = pool.key(request.prefix, tail), request.blocks[request.registered]
            if pool.find(key) is None:
                pool.enter(block, key, request.prefix)
        else:
            key = pool.key_of(request.blocks[request.registered - 1])
        before = pool.find((key[0], key[1][:-4])) if key is not None else None
        if before is not None:
            pool.demote(before)

    def resume_at(self, request: Request, cached: list[int]) -> tuple[int, int, list[int]]:
        """(tokens whose keys it has already; how many blocks of `cached` it takes over; host blocks that follow them).
        Where the device has all, the last token must still be computed for its logits: in a copy of its block. So it is
        where a block that is not full holds all before it."""
        size, count = self._pool.block_size, len(request.token_ids)
        full = self._full(cached)
        computed = len(full) * size
        if len(full) < len(cached):
            return count - 1, len(full), []
        if computed == count:
            return computed - 1, len(cached) - 1, []
        if request.host_blocks:
            computed = max(computed, request.host_tokens)
            return computed, len(cached), request.host_blocks[len(cached) : -(-computed // size)]
        if not self._host.caching or request.params.prompt_logprobs >= 0:
            return computed, len(cached), []
        found = self._host.cached(self._pool.prefix_after(cached, request.salt), request.token_ids[computed:])
        return computed + len(found) * size, len(cached), found

    def next_key(self, token_ids: Int32, blocks: list[int], salt: str) -> Key | None:
        """Key of the first full block after `blocks`, which are cached."""
        start, size = len(blocks) * self._pool.block_size, self._pool.block_size
        if not self._pool.caching or start + size > len(token_ids):
            return None
        return self._pool.key(self._pool.prefix_after(blocks, salt), token_ids[start : start + size])

    def awaits(self, request: Request, cached: list[int]) -> bool:
        """Whether another is computing the block that it would compute next, or it is being read from the disk, so that
        it will hit if it waits."""
        if request.host_blocks or len(self._full(cached)) < len(cached):
            return False
        if self.next_key(request.token_ids, cached, request.salt) in self._computing:
            return True
        return request.params.prompt_logprobs < 0 and self._host.awaits(request, self._pool, cached)

    def expect(self, request: Request, key: Key | None) -> None:
        """Note which full block it computes next, so that others wait for it instead of computing it too."""
        if request.computing is not None and self._computing.get(request.computing) is request:
            del self._computing[request.computing]
        request.computing = key
        if key is not None:
            self._computing.setdefault(key, request)
