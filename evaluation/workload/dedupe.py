"""What a prefix cache should find in a data set: its own block trie, exact, with or without a limit."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct


class BlockTrie:
    """Blocks of tokens after their prefixes, as an engine's prefix cache holds them.

    capacity: in blocks; beyond, the block that was used longest ago goes, leaves before their prefixes. None: no limit.
    """

    def __init__(self, block_tokens: int, capacity: int | None = None) -> None:
        self._block = block_tokens
        self._capacity = capacity
        self._nodes: OrderedDict[tuple[int, bytes], int] = OrderedDict()  # (prefix's node, tokens) → node; oldest first
        self._next = 1

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, tokens: Sequence[int]) -> int:
        """Tokens of the prompt that were there before; then it is there itself. The last token is always computed."""
        size = self._block
        data = array("q", tokens).tobytes()
        width = 8 * size
        path: list[tuple[int, bytes]] = []
        parent, hit, looking = 0, 0, True
        usable = (len(tokens) - 1) // size if tokens else 0
        for number in range(len(tokens) // size):
            key = (parent, data[number * width : (number + 1) * width])
            node = self._nodes.get(key)
            if node is None:
                looking = False
                node = self._next
                self._next += 1
                self._nodes[key] = node
            elif looking and number < usable:
                hit += size
            path.append(key)
            parent = node
        for key in reversed(path):  # a prefix is always younger than what follows it
            self._nodes.move_to_end(key)
        if self._capacity is not None:
            while len(self._nodes) > self._capacity:
                self._nodes.popitem(last=False)
        return hit


class Reuse(Struct, kw_only=True):
    """Of a data set in its order of sending."""

    prompts: int
    tokens: int
    hit_tokens: int
    hit_rate: float | None  # of prompt tokens; None for an empty set
    hit_rate_limited: float | None = None  # with a cache of the given size
    duplicates: list[tuple[int, int]] = []  # (first, later) prompts that are equal, the first 20
    duplicate_count: int = 0  # prompts that are equal to one before


class DuplicatePrompts(ValueError):
    """A data set repeats prompts without having declared it: what it measures is the cache (vllm #10753)."""

    code = "duplicate_prompts"


def reuse(prompts: Iterable[Sequence[int]], block_tokens: int, cache_tokens: int | None = None) -> Reuse:
    """prompts: token ids, in the order of sending."""
    whole = BlockTrie(block_tokens)
    limited = BlockTrie(block_tokens, cache_tokens // block_tokens) if cache_tokens is not None else None
    seen: dict[bytes, int] = {}
    total = hits = limited_hits = count = repeated = 0
    duplicates: list[tuple[int, int]] = []
    for index, prompt in enumerate(prompts):
        count += 1
        total += len(prompt)
        hits += whole.add(prompt)
        if limited is not None:
            limited_hits += limited.add(prompt)
        first = seen.setdefault(sha256(array("q", prompt).tobytes()).digest(), index)
        if first != index:
            repeated += 1
            if len(duplicates) < 20:
                duplicates.append((first, index))
    return Reuse(
        prompts=count,
        tokens=total,
        hit_tokens=hits,
        hit_rate=hits / total if total else None,
        hit_rate_limited=limited_hits / total if total and limited is not None else None,
        duplicates=duplicates,
        duplicate_count=repeated,
    )


def refuse_duplicates(found: Reuse) -> None:
    """Raises DuplicatePrompts naming the first pair."""
    if found.duplicate_count:
        first, later = found.duplicates[0]
        raise DuplicatePrompts(
            f"{found.duplicate_count} of {found.prompts} prompts repeat one before (prompt {later} is prompt {first}), "
            "so a prefix cache answers for the model. Give more distinct prompts, or set dataset.allow_duplicates "
            "where that is the traffic"
        )
