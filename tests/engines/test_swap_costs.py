"""From how many tokens on swapping is cheaper."""

from __future__ import annotations

import pytest

from engines.native.config import EngineConfig
from engines.native.swap_costs import NEVER, SwapCosts, measure
from evaluation.benchmarks.random_model import TINY, random_runner


@pytest.mark.parametrize(
    ("costs", "tokens"),
    [
        (SwapCosts(fixed_s=0.5, swap_s=0.25, recompute_s=0.5), 2),
        (SwapCosts(fixed_s=0.0, swap_s=0.0, recompute_s=0.1), 1),
        (SwapCosts(fixed_s=0.001, swap_s=0.2, recompute_s=0.1), NEVER),
        (SwapCosts(fixed_s=0.0, swap_s=0.1, recompute_s=0.1), NEVER),
    ],
)
def test_the_lines_cross_where_the_fixed_cost_is_earned_back(costs: SwapCosts, tokens: int) -> None:
    assert costs.crossover == tokens
    if tokens < NEVER and costs.fixed_s:
        assert costs.recompute_s * tokens >= costs.fixed_s + costs.swap_s * tokens - 1e-12


def config(swap: int) -> EngineConfig:
    return EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=64, max_num_seqs=2,
        max_batched_tokens=40, kv_cache_bytes=1 << 17, block_size=8, threads=1, swap_space_bytes=swap,
    )  # fmt: skip


def test_measured_on_the_runner_that_serves() -> None:
    runner = random_runner(TINY, config(1 << 16), seed=1)
    assert runner.host_blocks == (1 << 16) // (2 * 2 * 16 * 8 * 4) - 1, "one is the null block"
    costs = measure(runner, 40)
    assert 0 < costs.recompute_s < 1
    assert 0 <= costs.swap_s < 1
    assert costs.crossover >= 1


def test_a_cpu_has_no_host_memory_by_itself_and_swaps_nothing() -> None:
    runner = random_runner(TINY, config(-1), seed=1)
    assert runner.host_blocks == 0
    assert runner.swap_min_tokens == NEVER
