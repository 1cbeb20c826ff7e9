"""What a level sends: its data set, made ahead in parts, at the times of its schedule, after a warm-up that shares no
prompt with it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from evaluation.schema import Concurrency, DatasetInfo, Jsonl, Rate, RunSpec, ShareGpt, Trace
from evaluation.workload.arrivals import offsets_ns
from evaluation.workload.datasets import Built, build
from evaluation.workload.errors import DatasetError
from evaluation.workload.item import Item, Planned
from evaluation.workload.seeds import rng
from evaluation.workload.tokens import Tokenizer

AHEAD = 1.2  # x what a level needs at least is made before it begins
MOST_OF_A_TRACE = 10**6
PART = 256  # items made at a time while it runs
FROM_FILE = (Jsonl, ShareGpt, Trace)


@dataclass
class Traffic:
    """`planned` is to be consumed once; `used` counts the items that were taken from a file."""

    planned: AsyncIterator[Planned]
    info: DatasetInfo
    built: Built
    warm_up_s: float
    seed: int
    used: Callable[[], int]


def level_seed(seed: int, index: int, resumed: int = 0) -> int:
    """Of one level: streams of two levels share nothing, nor those of a level that is begun once more."""
    return int(rng(seed, "level", index, resumed).integers(2**48))


async def traffic(
    spec: RunSpec, tokenizer: Tokenizer, *, rate: float | None, index: int, seed: int, first: int, resumed: int = 0
) -> Traffic:
    """first: items of a file that levels before have used. Raises DatasetError, DuplicatePrompts, RequestError."""
    own_seed = level_seed(seed, index, resumed)
    from_file = isinstance(spec.dataset, FROM_FILE)
    closed = isinstance(spec.load, Concurrency)
    ramp_s = spec.load.ramp_s if isinstance(spec.load, Rate) else 0.0
    warm_up_s = max(spec.warm_up_s, ramp_s)
    chat = spec.endpoint.api == "chat"

    async def make(count: int, begin: int, stream: str = "measured") -> Built:
        seeds = seed if from_file and stream == "measured" else own_seed  # a file is shuffled once
        return await build(spec.dataset, count, tokenizer=tokenizer, chat=chat, seed=seeds, stream=stream, first=begin)

    begin = first if from_file else 0
    trace = isinstance(spec.load, Rate) and spec.load.arrivals == "trace"
    count = _count(spec, rate, trace=trace)
    built = await make(count, begin)
    if not built.items and isinstance(spec.dataset, FROM_FILE):
        raise DatasetError(
            spec.dataset.path,
            f"no more distinct prompts: {begin} are used up before level {index + 1}",
            "Give a longer file, ask for fewer levels or requests (load.max_levels, min_requests), or let a file of "
            "prompts repeat by dataset.allow_duplicates",
        )
    warm_count = 2 * spec.load.concurrency + 8 if isinstance(spec.load, Concurrency) else \
        math.ceil(1.5 * (rate or 1.0) * warm_up_s) + 8  # fmt: skip
    warm = (await make(warm_count, 0, "warm_up")).items if warm_up_s and not trace else []
    taken = [0]

    async def items() -> AsyncIterator[Item]:
        part, place = built.items, begin + len(built.items)
        while part:
            more = len(part) >= min(count, PART) and not trace
            following = asyncio.create_task(make(PART, place)) if more else None
            try:
                for one in part:
                    taken[0] += 1
                    yield one
                if following is None:
                    return
                part = (await following).items
            finally:
                if following is not None:
                    following.cancel()  # the level has ended before they were needed
            place += len(part)

    async def planned() -> AsyncIterator[Planned]:
        source = items()
        number, began = 0, time.monotonic()
        if closed:
            for one in warm:
                if time.monotonic() - began >= warm_up_s:
                    break
                yield Planned(index=number, item=one, warm_up=True)
                number += 1
            async for one in source:
                yield Planned(index=number, item=one)
                number += 1
            return
        assert not isinstance(spec.load, Concurrency)
        early = iter(warm)
        for offset in offsets_ns(spec.load, rate, own_seed, ramp_s=ramp_s, trace_s=built.offsets_s):
            is_warm = offset < warm_up_s * 1e9
            item = next(early, None) if is_warm else None
            if item is None:
                item = await anext(source, None)
            if item is None:
                return
            yield Planned(index=number, item=item, offset_ns=offset, warm_up=is_warm)
            number += 1

    return Traffic(planned(), built.info, built, warm_up_s, own_seed, lambda: taken[0] if from_file else 0)


def _count(spec: RunSpec, rate: float | None, *, trace: bool) -> int:
    """Items that a level needs at least. A trace that gives the times is sent to its end."""
    if trace:
        return MOST_OF_A_TRACE
    needed = spec.min_requests
    if rate is not None:
        needed = max(needed, math.ceil(rate * spec.steady.min_s))
    return math.ceil(AHEAD * needed) + 1
