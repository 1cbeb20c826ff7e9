"""What fits: which dtype × context × concurrency a device has memory for, and the largest of each.

A combination fits when all of its requests can be of full length at the same time: weights, activations, overhead and
a KV cache for `max_num_seqs` × `max_model_len` tokens, by the plan that the runner itself follows. Of a GPU's free
memory the engine leaves a share alone (`memory.GPU_SHARE`), here too. The engine runs more requests than that where
they are short: a KV cache is shared by the tokens that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from engines.api import Combination, DtypeCapacity, LaunchSpec, ModelShape, size_text
from engines.native import memory
from engines.native.config import ConfigError

MOST_SEQS = 4096
"""Concurrency beyond which nobody looks."""


def capacity_of(
    shape: ModelShape,
    spec: LaunchSpec,
    available: int,
    dtype: str,
    contexts: Sequence[int],
    concurrencies: Sequence[int],
) -> DtypeCapacity:
    """`spec` gives device and options; its dtype, lengths and KV cache are not read. `available`: bytes."""
    try:
        base = memory.demand_for(shape, spec, dtype=dtype, max_model_len=0, max_num_seqs=1)
    except ConfigError as error:
        return DtypeCapacity(dtype, False, str(error), 0, 0, [], [], [])
    room = _Room(shape, base, available)
    least = room.combination(min(base.block_size, base.max_model_len), 1)
    longest = room.longest(1)
    if longest:
        reason = f"One request can have {longest:,} tokens." if longest < shape.context_length else ""
    else:
        reason = least.reason
    return DtypeCapacity(
        dtype=base.dtype,
        fits=least.fits,
        reason=reason,
        weights=memory.plan(shape, base, available).weights,
        max_model_len=longest,
        by_context=[room.widest(length) for length in contexts],
        by_concurrency=[room.deepest(count) for count in concurrencies],
        combinations=[room.combination(length, count) for length in contexts for count in concurrencies],
    )


class _Room:
    def __init__(self, shape: ModelShape, base: memory.Demand, available: int) -> None:
        self._shape, self._base, self._available = shape, base, available
        self._usable = int(available * memory.GPU_SHARE) if base.device == "cuda" else available

    def combination(self, length: int, count: int) -> Combination:
        """One request at least: `count` 0 is judged as 1."""
        context = self._shape.context_length
        if length > context:
            reason = f"The model was made for {context:,} tokens."
            return Combination(length, count, False, 0, 0, reason)
        plan = self._plan(length, max(count, 1))
        fits = plan.total <= self._usable
        return Combination(length, count, fits, plan.total, plan.kv_cache, "" if fits else self._why(plan))

    def widest(self, length: int) -> Combination:
        """As many requests of `length` tokens as there is memory for; 0 with the reason."""
        return self.combination(length, _most(lambda count: self.combination(length, count).fits, MOST_SEQS))

    def deepest(self, count: int) -> Combination:
        """The longest `count` requests at once; 0 with the reason."""
        length = self.longest(count)
        if length:
            return self.combination(length, count)
        shortest = self.combination(min(self._base.block_size, self._shape.context_length), count)
        return msgspec.structs.replace(shortest, max_model_len=0)

    def longest(self, count: int) -> int:
        """Tokens that each of `count` requests can have; whole blocks, or all that the model was made for."""
        size, context = self._base.block_size, self._shape.context_length
        blocks = _most(lambda blocks: self._fits(min(blocks * size, context), count), -(-context // size))
        return min(blocks * size, context)

    def _fits(self, length: int, count: int) -> bool:
        return self._plan(length, count).total <= self._usable

    def _plan(self, length: int, count: int) -> memory.MemoryPlan:
        base = self._base
        batched = max(base.max_batched_tokens, count + base.block_size)
        kv_bytes = memory.kv_bytes_for(self._shape, base.dtype, base.block_size, length, count, base.kv_cache_dtype)
        demand = replace(
            base, max_model_len=length, max_num_seqs=count, max_batched_tokens=batched, kv_cache_bytes=kv_bytes
        )
        return memory.plan(self._shape, demand, self._available)

    def _why(self, plan: memory.MemoryPlan) -> str:
        usable = size_text(self._usable)
        if plan.weights > self._usable:
            return f"The weights take {size_text(plan.weights)} and {usable} can be used."
        beside = plan.total - plan.kv_cache
        if beside > self._usable:
            return f"Weights, activations and overhead take {size_text(beside)} and {usable} can be used."
        left = self._usable - beside
        return f"The KV cache takes {size_text(plan.kv_cache)} and {size_text(left)} are left beside the weights."


def _most(fits: Callable[[int], bool], limit: int) -> int:
    """The greatest number of 1 … limit that fits, where all below one that fits do too; 0 if none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
