"""Blocks to host memory and back on the real pools, and preemption by swapping on a real model."""

from __future__ import annotations

import pytest
import torch

from engines.native.config import EngineConfig
from engines.native.host_blocks import HostBlocks, _runs
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.state import kv_pool
from evaluation.benchmarks.random_model import TINY, random_runner


def test_blocks_come_back_as_they_went_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.native.host_blocks.STAGED_BYTES", 3 * 2 * 2 * 2 * 4 * 8 * 4)  # three blocks at a time
    layers = kv_pool(2, 12, 2, 4, 8, torch.float32, torch.device("cpu"))
    pools = [pool for layer in layers for pool in layer]
    for number, pool in enumerate(pools):
        pool.copy_(torch.arange(pool.numel()).view(pool.shape) + 1000.0 * number)
    before = [pool.clone() for pool in pools]
    host = HostBlocks(layers, 9)
    there = [(3, 5), (1, 6), (2, 7), (11, 1), (7, 9), (4, 2), (5, 3)]
    host.swap_out(there)
    for pool in pools:
        pool.zero_()
    back = [(at, 12 - block) for block, at in there]
    host.swap_in(back)
    for pool, old in zip(pools, before, strict=True):
        for block, _ in there:
            assert torch.equal(pool[12 - block], old[block])
        untouched = set(range(12)) - {12 - block for block, _ in there}
        assert not pool[sorted(untouched)].any()


def test_runs_are_what_one_copy_can_take() -> None:
    assert list(_runs([1, 2, 3, 5, 7, 8])) == [(0, 3), (3, 4), (4, 6)]
    assert list(_runs([4])) == [(0, 1)]


def tiny(kv_blocks: int, swap_blocks: int) -> Offline:
    block = 2 * 2 * 1 * 16 * 8 * 4  # bytes: K and V, layers, heads, head size, tokens, float32
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=64, max_num_seqs=4,
        max_batched_tokens=32, kv_cache_bytes=kv_blocks * block, block_size=8, threads=1,
        swap_space_bytes=swap_blocks * block, prefix_cache=False,
    )  # fmt: skip
    runner = random_runner(TINY, config, seed=5)
    runner.swap_min_tokens = 1
    return Offline(config, runner)


def test_f1_f4_ids_equal_an_unpreempted_run_on_a_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [[7 + i, 3, 9, 4, 1] for i in range(4)]
    params = SamplingParams(temperature=0, max_tokens=40)
    calm = tiny(60, 0).generate(prompts, params)
    engine = tiny(14, 40)
    moved = []
    swap_out = ModelRunner.swap_out
    monkeypatch.setattr(ModelRunner, "swap_out", lambda self, pairs: (moved.extend(pairs), swap_out(self, pairs)))
    for length in (1, 1, 1, 1):
        engine.generate([[1, 2]], SamplingParams(temperature=0, max_tokens=length))  # outputs look short
    pressed = engine.generate(prompts, params)
    assert engine.scheduler.host.swaps > 0
    assert moved
    assert [one.token_ids for one in pressed] == [one.token_ids for one in calm]
    assert engine.scheduler.check() == []
    assert engine.scheduler.host.used == 0


@pytest.mark.parametrize("swap_blocks", [0, 40], ids=["computed again", "swapped"])
def test_a_preempted_prompt_is_scored_once(swap_blocks: int) -> None:
    prompts = [[7 + i, 3, 9, 4, 1] for i in range(4)]
    params = SamplingParams(temperature=0, max_tokens=40, prompt_logprobs=0)
    calm = tiny(60, 0).generate(prompts, params)
    engine = tiny(14, swap_blocks)
    engine.generate([[1, 2]] * 4, SamplingParams(temperature=0, max_tokens=1))
    pressed = engine.generate(prompts, params)
    assert engine.scheduler.preemptions > 0
    for one, other in zip(pressed, calm, strict=True):
        assert one.prompt_logprobs == pytest.approx(other.prompt_logprobs, abs=1e-4)
        assert len(one.prompt_logprobs) == 4
