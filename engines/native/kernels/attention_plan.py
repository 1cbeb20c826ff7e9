"""How one attention launch is cut up: tile shapes from a frozen table, the number of splits from upper bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

Kind = Literal["decode", "chunk", "prefill"]

PROGRAMS = 2  # per processor, where splits can make as many
MIN_SPLIT = 256  # keys per split: below it the merge costs more than the parallelism gives
MIN_SPLIT_DECODE = {1024: 64, 1 << 31: 128}  # up to so many keys; measured on an H200, batch 1 and 8
MIN_SPLIT_CHUNK = {1024: 128, 4096: 256, 1 << 31: 512}  # more queries, more to merge
SHORT, MANY = (
    768,
    4,
)  # with so few keys and so many work items per processor, more programs at once pay more than stages
MAX_TREE = 32  # queries of a row that are nodes of a tree
MAX_SPLIT = 4096  # keys per split of few queries, even where rows alone fill the device: a long row among short ones
EARLY = 1024
"""Keys per split up to which programs may be placed before the kernel in front has ended. They are then placed around
that kernel's, unevenly, which a long program pays for more than an early start gives: 32 × 8,192 keys of the 8B shape
13.6 ms a step, 12.4 without; one row of 512 keys 4.10 and 4.13 (H200)."""


@dataclass(frozen=True, slots=True)
class Tile:
    """block_m query rows (tokens × group) against block_n keys per step; warps and pipeline stages of a program."""

    block_m: int
    block_n: int
    warps: int
    stages: int


# One frozen choice per shape; head size 128 measured on an H200 (docs/benchmarks/attention_tiles.h200.json; one warp
# for a decode: docs/performance.md).
# HOPPER uses up to 227 KiB of shared memory and wgmma; PORTABLE fits the 99 KiB of sm_86 and sm_89.
HOPPER: dict[tuple[int, Kind], Tile] = {
    (64, "decode"): Tile(16, 64, 4, 4),
    (64, "chunk"): Tile(64, 64, 4, 3),
    (64, "prefill"): Tile(128, 64, 8, 3),
    (128, "decode"): Tile(16, 32, 1, 4),
    (128, "chunk"): Tile(64, 64, 4, 3),
    (128, "prefill"): Tile(128, 64, 8, 3),
    (256, "decode"): Tile(16, 32, 4, 3),
    (256, "chunk"): Tile(64, 32, 8, 2),
    (256, "prefill"): Tile(64, 32, 8, 2),
}
PORTABLE: dict[tuple[int, Kind], Tile] = {
    (64, "decode"): Tile(16, 64, 4, 4),
    (64, "chunk"): Tile(64, 32, 4, 3),
    (64, "prefill"): Tile(128, 32, 8, 3),
    (128, "decode"): Tile(16, 64, 4, 3),
    (128, "chunk"): Tile(64, 32, 4, 3),
    (128, "prefill"): Tile(64, 32, 4, 3),
    (256, "decode"): Tile(16, 32, 4, 2),
    (256, "chunk"): Tile(64, 32, 8, 2),
    (256, "prefill"): Tile(64, 32, 8, 2),
}
HOPPER_8BIT: dict[tuple[int, Kind], Tile] = {
    (64, "decode"): Tile(16, 64, 4, 4),
    (64, "chunk"): Tile(64, 64, 4, 3),
    (64, "prefill"): Tile(128, 64, 8, 3),
    (128, "decode"): Tile(16, 64, 2, 3),
    (128, "chunk"): Tile(64, 128, 4, 2),
    (128, "prefill"): Tile(128, 64, 8, 3),
    (256, "decode"): Tile(16, 32, 4, 3),
    (256, "chunk"): Tile(64, 32, 8, 2),
    (256, "prefill"): Tile(64, 32, 8, 2),
}
"""For pools in 8 bits, which are read as pairs: the same bytes are twice the keys."""
FEW_8BIT: dict[int, Tile] = {128: Tile(16, 128, 4, 3)}
"""By head size, for decodes of long splits with FEW work items per processor, none of which may wait for its own
arithmetic: 1.7 (fp8, int8) in place of 1.5 and 1.4 times bf16's speed at 16 × 8,192."""
FEW, LONG_SPLIT = 2.5, 512
TILES_FLOAT32: dict[Kind, Tile] = {
    "decode": Tile(16, 32, 4, 1),
    "chunk": Tile(32, 16, 8, 1),
    "prefill": Tile(32, 16, 8, 1),
}  # exact (no tf32), for checks; not tuned


@dataclass(frozen=True, slots=True)
class Device:
    """What a plan needs to know of a GPU. `capability` as CUDA gives it, e.g. (9, 0)."""

    processors: int
    capability: tuple[int, int]

    @classmethod
    def of(cls, device: torch.device) -> Device:
        """Properties of a CUDA device; of the interpreter (one program at a time) for a CPU."""
        if device.type != "cuda":
            return cls(1, (8, 0))
        found = torch.cuda.get_device_properties(device)
        return cls(found.multi_processor_count, (found.major, found.minor))


UNSPLIT = 1 << 30
"""Keys per split where a row's keys stay together: more than any row has, a multiple of every tile."""

MERGED = 4096
"""Values that a merge reads at once: 32 registers of each of 128 threads."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid and constants of one launch. block_q: query tokens per block; merge_m: power of 2 that the rows in use of a
    block fit in; split_tokens: keys per split; together: splits that a merge reads at once; apart: rows of many
    values, whose splits it adds up one by one; twice: whether tiles that every query sees have a loop of their own,
    without masks; early: whether programs may be placed while the kernel in front runs."""

    tile: Tile
    block_d: int
    block_q: int
    merge_m: int
    query_blocks: int
    one_block: bool
    split_tokens: int
    splits: int
    together: int
    apart: bool
    twice: bool
    early: bool


def plan(
    *, tokens: int, rows: int, group: int, kv_heads: int, head_dim: int, max_query: int, max_seq: int, window: int,
    dtype: torch.dtype, device: Device, pairs: bool = False, tree: bool = False,
) -> Launch:  # fmt: skip
    """Cut a launch of `tokens` queries in `rows` rows. max_query, max_seq: upper bounds known on the host. dtype: of
    the queries. pairs: whether the pools are in 8 bits. tree: whether queries see what their words say.

    Raises ValueError for a head size over 256.
    """
    kind: Kind = "decode" if max_query * group <= 16 else "chunk" if max_query * group <= 64 else "prefill"
    tile = choose_tile(head_dim, kind, dtype, device, pairs)
    if kind == "decode" and tile.warps == 1 and max_seq <= SHORT and rows * kv_heads >= MANY * device.processors:
        tile = replace(tile, stages=2)
    rows_used = _power_of_2(max_query * group)  # a smaller tile where no row fills the table's
    block_m = max(min(tile.block_m, rows_used), 16, _power_of_2(group))
    if block_m != tile.block_m:
        tile = Tile(block_m, tile.block_n, tile.warps, tile.stages)
    block_q = block_m // group
    one_block = max_query <= block_q
    query_blocks = rows if one_block else tokens // block_q + rows
    ahead = max(block_q, min(max_query, MAX_TREE)) if tree else block_q  # keys of the pass that a block may see
    keys = max_seq if window == 0 else min(max_seq, window + ahead + tile.block_n)
    wanted = max(1, PROGRAMS * device.processors // max(query_blocks * kv_heads, 1))
    size = -(-keys // wanted)
    apart = kind == "chunk" or (kind == "prefill" and tree)
    if kind == "decode" or apart:
        least = MIN_SPLIT_CHUNK if apart else MIN_SPLIT_DECODE
        size = min(max(size, next(size for longest, size in least.items() if keys <= longest)), MAX_SPLIT)
    else:
        size = max(size, MIN_SPLIT)
    items = query_blocks * kv_heads * keys / size
    if pairs and kind == "decode" and size >= LONG_SPLIT and items <= FEW * device.processors:
        tile = few_tile(head_dim, tile, device)
    split_tokens = -(-size // tile.block_n) * tile.block_n
    splits = max(1, -(-keys // split_tokens))
    block_d, merge_m = max(32 if pairs else 16, _power_of_2(head_dim)), min(block_m, rows_used)  # a product takes 16
    together = max(1, MERGED // (merge_m * block_d))
    if apart:
        together = 1 if merge_m * block_d > 32 * 32 * tile.warps else 2 if pairs else 4  # registers are what limits it
    return Launch(
        tile=tile,
        block_d=block_d,
        block_q=block_q,
        merge_m=merge_m,
        query_blocks=query_blocks,
        one_block=one_block,
        split_tokens=split_tokens,
        splits=splits,
        together=together,
        apart=apart,
        twice=window == 0 and not one_block,
        early=split_tokens <= EARLY,
    )


def fixed_plan(
    *, tokens: int, rows: int, group: int, head_dim: int, dtype: torch.dtype, device: Device, pairs: bool = False
) -> Launch:
    """A launch as `plan` takes it, in which nothing but a query's own position decides the order of its sums: one tile
    for any company, tiles of keys from absolute positions on, no splits, one loop for seen and half-seen tiles."""
    tile = choose_tile(head_dim, "chunk", dtype, device, pairs)
    tile = replace(tile, block_m=max(tile.block_m, _power_of_2(group)))
    block_q = tile.block_m // group
    return Launch(
        tile=tile, block_d=max(32 if pairs else 16, _power_of_2(head_dim)), block_q=block_q, merge_m=tile.block_m,
        query_blocks=tokens // block_q + rows, one_block=False, split_tokens=UNSPLIT, splits=1, together=1,
        apart=False, twice=False, early=True,
    )  # fmt: skip


def choose_tile(head_dim: int, kind: Kind, dtype: torch.dtype, device: Device, pairs: bool = False) -> Tile:
    if head_dim > 256:
        raise ValueError(f"head size {head_dim} is over 256, the largest that the attention kernel takes")
    if dtype == torch.float32:
        return TILES_FLOAT32[kind]
    tiles = PORTABLE if device.capability[0] != 9 else HOPPER_8BIT if pairs else HOPPER
    return tiles[max(64, _power_of_2(head_dim)), kind]


def few_tile(head_dim: int, tile: Tile, device: Device) -> Tile:
    """In place of `tile`, where FEW_8BIT has one."""
    few = FEW_8BIT.get(max(64, _power_of_2(head_dim))) if device.capability[0] == 9 else None
    return replace(few, block_m=tile.block_m) if few is not None and tile.block_m == few.block_m else tile


def _power_of_2(x: int) -> int:
    return 1 << (x - 1).bit_length()


class Workspace:
    """Device memory for partial results, one per device and stream; grows to the largest launch and is kept.

    `arrived` holds zeros between launches: the last program of each work item resets its counter. Buffers replaced
    by larger ones stay referenced, since a captured CUDA graph may still write to them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.partial = torch.empty(0, dtype=torch.float32, device=device)
        self.stats = torch.empty(0, dtype=torch.float32, device=device)
        self.arrived = torch.zeros(0, dtype=torch.int32, device=device)
        self._replaced: list[torch.Tensor] = []

    def reserve(self, items: int, lanes: int, head_dim: int) -> None:
        """Room for `items` (query block, KV head) pairs and `lanes` = items × splits × rows of a block."""
        if self.arrived.numel() < items:
            self._replaced.append(self.arrived)
            self.arrived = torch.zeros(items, dtype=torch.int32, device=self.device)
        if self.stats.numel() < lanes * 2 or self.partial.numel() < lanes * head_dim:
            self._replaced += [self.partial, self.stats]
            self.partial = torch.empty(lanes * head_dim, dtype=torch.float32, device=self.device)
            self.stats = torch.empty(lanes * 2, dtype=torch.float32, device=self.device)
