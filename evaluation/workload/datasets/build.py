"""A data set as a run needs it: items, their lengths as the server counts them, what its prefix cache should find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from evaluation.metrics.quantiles import summarize
from evaluation.schema import (
    AnyDataset,
    DatasetInfo,
    Jsonl,
    Length,
    Sessions,
    SharedPrefix,
    ShareGpt,
    Synthetic,
    Trace,
)
from evaluation.workload.datasets.files import JsonlSource, ShareGptSource
from evaluation.workload.datasets.made import SessionsSource, SharedPrefixSource, SyntheticSource
from evaluation.workload.datasets.replayed import TraceSource
from evaluation.workload.datasets.source import Draw, Made, Source
from evaluation.workload.dedupe import Reuse, refuse_duplicates, reuse
from evaluation.workload.item import Item
from evaluation.workload.tokens import Tokenizer

SOURCES: dict[type, Callable[[Any, Draw], Source[Any]]] = {
    Synthetic: SyntheticSource,
    SharedPrefix: SharedPrefixSource,
    Jsonl: JsonlSource,
    ShareGpt: ShareGptSource,
    Trace: TraceSource,
    Sessions: SessionsSource,
}
AT_ONCE = 16  # items being made
WARM_UP_SAMPLE = 64  # items of a file whose lengths a warm-up copies


class Built(Struct, kw_only=True):
    items: list[Item]
    info: DatasetInfo
    reuse: Reuse
    token_source: str  # endpoint, file or estimate
    verified: bool  # lengths were counted by the served model's tokenizer
    offsets_s: list[float] = []  # of a trace: when its requests came


async def build(
    spec: AnyDataset,
    count: int,
    *,
    tokenizer: Tokenizer,
    chat: bool,
    seed: int,
    stream: str = "measured",
    first: int = 0,
    cache_tokens: int | None = None,
) -> Built:
    """Items `first` to `first + count`; fewer where a file has no more distinct ones and may not repeat them.

    stream: "measured" or "warm_up". A warm-up for a file is made of words, in the file's lengths. cache_tokens: size of
    the server's prefix cache, for `reuse.hit_rate_limited`. Raises DatasetError, DuplicatePrompts, RequestError.
    """
    draw = Draw(seed, stream, tokenizer, chat)
    source = SOURCES[type(spec)](spec, draw)
    if stream != "measured" and isinstance(spec, Jsonl | ShareGpt):
        source = SyntheticSource(await _like(source), draw)
    available = source.available
    if spec.requests is not None:
        available = spec.requests if available is None else min(available, spec.requests)
    end = first + count
    if available is not None and (isinstance(spec, Trace) or not spec.allow_duplicates):
        end = min(end, available)  # a recording is over when it is over
    indices = [index % available if available is not None else index for index in range(first, end)]
    made = [entry for batch in _batches(indices) for entry in await asyncio.gather(*map(source.item, batch))]
    found = _reuse(spec, made, cache_tokens)
    declared = spec.allow_duplicates or (isinstance(source, TraceSource) and source.hashed)
    if not declared:
        refuse_duplicates(found)
    return Built(
        items=[entry.item for entry in made],
        info=_info(spec, made, found, tokenizer),
        reuse=found,
        token_source=tokenizer.source,
        verified=tokenizer.verified,
        offsets_s=source.offsets_s(indices) if isinstance(source, TraceSource) else [],
    )


def _batches(indices: list[int]) -> list[list[int]]:
    return [indices[place : place + AT_ONCE] for place in range(0, len(indices), AT_ONCE)]


async def _like(source: Source[Any]) -> Synthetic:
    turns = [(await source.item(index)).item.turns[0] for index in range(min(WARM_UP_SAMPLE, source.available or 0))]
    prompts = [turn.prompt_tokens or 1 for turn in turns]
    outputs = [turn.max_tokens or 1 for turn in turns]
    return Synthetic(
        prompt=Length(distribution="histogram", values=prompts), output=Length(distribution="histogram", values=outputs)
    )


def _reuse(spec: AnyDataset, made: list[Made], cache_tokens: int | None) -> Reuse:
    """By the block trie over first turns; a later turn also finds the turn before it and its answer."""
    found = reuse((entry.ids[0] for entry in made), spec.block_tokens, cache_tokens)
    for entry in made:
        for turn, before, ids in zip(entry.item.turns, entry.ids, entry.ids[1:], strict=False):
            answered = (turn.max_tokens or 1) - 1  # the last token of an answer is never computed upon
            known = min(len(before) + answered, len(ids) - 1)
            found.tokens += len(ids)
            found.hit_tokens += known // spec.block_tokens * spec.block_tokens
    found.hit_rate = found.hit_tokens / found.tokens if found.tokens else None
    return found


def _info(spec: AnyDataset, made: list[Made], found: Reuse, tokenizer: Tokenizer) -> DatasetInfo:
    turns = [(turn, ids) for entry in made for turn, ids in zip(entry.item.turns, entry.ids, strict=True)]
    return DatasetInfo(
        sha256=sha256(msgspec.json.encode([entry.item for entry in made])).hexdigest(),
        requests=len(turns),
        lengths={
            "prompt": summarize([float(len(ids)) for _, ids in turns], "tokens"),
            "output": summarize([float(turn.max_tokens) for turn, _ in turns if turn.max_tokens], "tokens"),
        },
        expected_hit_rate=found.hit_rate,
        duplicates=found.duplicate_count,
        after_template=tokenizer.template and getattr(spec, "after_template", True),
    )
