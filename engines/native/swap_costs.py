"""From how many tokens on a preempted request is better copied to the host and back than computed again.

    computing again   recompute_s × n     prefill in a step that runs anyway; attention's square term is left out
    copying           fixed_s + swap_s × n     out and in: 2 × bytes per token / bandwidth, and the start of a copy

The lines cross at fixed_s / (recompute_s - swap_s); where copying a token takes longer than computing it, nowhere.
Measured on the device that serves, at start, where there is host memory for blocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engines.native.request import SamplingParams
from engines.native.step import Runner, StepPlan

PREFILL_TOKENS = {1: 128, 2: 2048}
"""Of the pass that is timed, by the runner's depth: enough to fill the device, a fraction of a second."""
SWAPPED_BLOCKS = 64
REPEATS = 3
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class SwapCosts:
    """Seconds. fixed_s: per swap; swap_s, recompute_s: per token."""

    fixed_s: float
    swap_s: float
    recompute_s: float

    @property
    def crossover(self) -> int:
        """Tokens from which copying is cheaper; NEVER where it isn't."""
        gain = self.recompute_s - self.swap_s
        return max(1, math.ceil(self.fixed_s / gain)) if gain > 0 else NEVER


def measure(runner: Runner, max_batched_tokens: int) -> SwapCosts:
    """On a runner that nobody uses yet: row 0 and the blocks from 1 on are written over."""
    blocks = min(SWAPPED_BLOCKS, runner.host_blocks, runner.num_blocks - 1)
    many = _best(runner, lambda: _there_and_back(runner, blocks))
    one = _best(runner, lambda: _there_and_back(runner, 1))
    tokens = (blocks - 1) * runner.block_size
    swap_s = max(0.0, many - one) / tokens if tokens else one / runner.block_size
    return SwapCosts(max(0.0, one - swap_s * runner.block_size), swap_s, _prefill_s(runner, max_batched_tokens))


def _there_and_back(runner: Runner, blocks: int) -> None:
    runner.swap_out([(block, block) for block in range(1, blocks + 1)])
    runner.swap_in([(block, block) for block in range(1, blocks + 1)])


def _prefill_s(runner: Runner, max_batched_tokens: int) -> float:
    """Seconds per token."""
    room = min(max_batched_tokens, runner.max_model_len - 1, (runner.num_blocks - 1) * runner.block_size)
    count = max(1, min(PREFILL_TOKENS[min(runner.depth, 2)], room))

    def prefill() -> None:
        runner.add(0, [0] * count, SamplingParams(temperature=0), count)
        held = list(range(1, -(-count // runner.block_size) + 1))
        row, start, tokens = np.array([[0], [0], [count]], np.int32)
        runner.launch(StepPlan(row, start, tokens, sample=np.array([True]), new_blocks=[(0, 0, held)])).wait()

    return _best(runner, prefill) / count


def _best(runner: Runner, work: Callable[[], None]) -> float:
    """Seconds of the fastest of REPEATS, after one that warms up."""
    work()
    times = []
    for _ in range(REPEATS):
        runner.synchronize()
        begun = time.perf_counter()
        work()
        runner.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times)
