"""Times of the attention kernel for other tiles than those in its table: how `attention_plan.HOPPER` was chosen.

`python -m evaluation.benchmarks.attention_tiles decode|chunk|prefill`, on the GPU that the table is for.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import torch

from engines.native.kernels import attention_plan
from engines.native.kernels.attention_plan import Kind, Tile
from engines.native.ops.triton_ops import TritonOps
from evaluation.benchmarks.gpu_timing import microseconds
from evaluation.benchmarks.kernel_cases import Paged, paged
from evaluation.benchmarks.kernel_times import BF16, LLAMA, PAGE, attend

SHAPES: dict[Kind, list[tuple[int, int, int]]] = {
    "decode": [(1, 1, 1024), (1, 1, 8192), (16, 1, 1024), (64, 1, 1024), (64, 1, 8192)],
    "chunk": [(1, 8, 8192), (16, 8, 1024), (64, 8, 8192)],
    "prefill": [(16, 1024, 1024), (1, 8192, 8192)],
}
"""(batch, query tokens, context)."""


def candidates(kind: Kind) -> Iterator[Tile]:
    if kind == "decode":
        for block_n, warps, stages in itertools.product((32, 64), (2, 4), (2, 3, 4)):
            yield Tile(16, block_n, warps, stages)
    elif kind == "chunk":
        for block_n, warps, stages in itertools.product((32, 64), (4,), (2, 3, 4)):
            yield Tile(64, block_n, warps, stages)
    else:
        for block_m, block_n, warps, stages in itertools.product((64, 128), (64, 128), (4, 8), (2, 3)):
            yield Tile(block_m, block_n, warps, stages)


def main(kinds: list[Kind]) -> None:
    device = torch.device("cuda")
    for kind in kinds:
        cases = [paged([query] * n, [length] * n, LLAMA, PAGE, BF16, device) for n, query, length in SHAPES[kind]]
        print(kind, "µs:", *(f"{n}×{query}×{length}" for n, query, length in SHAPES[kind]), flush=True)
        for programs in (2, 4) if kind == "decode" else (2,):
            attention_plan.PROGRAMS = programs
            for tile in candidates(kind):
                attention_plan.HOPPER[LLAMA.dim, kind] = tile
                print(f"{tile} programs={programs}", *(f"{_time(case):8.1f}" for case in cases), flush=True)


def _time(case: Paged) -> float:
    """NaN where the tile does not fit the device."""
    case.batch.shared = {}
    ops = TritonOps()
    try:
        return microseconds(lambda: attend(case, ops), repeats=10)
    except Exception as error:
        if type(error).__name__ != "OutOfResources":
            raise
        return float("nan")


if __name__ == "__main__":
    main([kind for kind in SHAPES if kind in sys.argv[1:]])
