"""The body of a decode graph, run without a graph in the interpreter; graphs themselves: `graph_check` on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.native.config import EngineConfig
from engines.native.decode_graph import DecodeGraphs
from engines.native.graph_buckets import keys_bucket, rows_bucket
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.step import StepPlan, TokenMasks
from evaluation.benchmarks.random_model import TINY, random_runner

ONE_LAYER = replace(TINY, layers=1, windows=(8,))


@given(st.integers(1, 600))
def test_rows_are_padded_to_few_sizes(rows: int) -> None:
    bucket = rows_bucket(rows)
    assert rows <= bucket
    assert rows_bucket(bucket) == bucket
    assert bucket - rows < (rows if rows <= 8 else 8 if rows <= 64 else 16 if rows <= 256 else 32)


@given(st.integers(1, 140_000), st.integers(16, 140_000))
def test_keys_are_bounded_by_a_quarter_more_at_most(keys: int, longest: int) -> None:
    keys = min(keys, longest)
    bucket = keys_bucket(keys, longest)
    assert keys <= bucket <= longest
    assert bucket <= max(512, keys * 5 // 4 + 1)


class Uncaptured(DecodeGraphs):
    """Every step runs the body that would be captured."""

    captures = steps = 0

    def capture(self, compute, what):
        self.captures += 1

    def _compute(self, step, keys, draw):
        self.steps += 1
        super()._compute(step, keys, draw)


@pytest.mark.kernels
@pytest.mark.parametrize("asks", [{}, {"frequency_penalty": 1.5, "logprobs": 2}], ids=["drawn inside", "to the logits"])
def test_the_body_draws_what_the_plain_path_draws_after_a_warm_up_too(asks: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(2)
    prompts = [torch.randint(0, TINY.vocab, (n,), generator=generator).tolist() for n in (9, 4, 1)]
    params = [
        SamplingParams(temperature=0, max_tokens=4),
        SamplingParams(temperature=0.9, seed=3, max_tokens=5),
        SamplingParams(temperature=1.2, seed=4, max_tokens=3, top_p=0.9, top_k=20),
    ]
    params = [replace(each, **asks) for each in params]
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=24, max_num_seqs=4,
        max_batched_tokens=32, kv_cache_bytes=1 << 18, block_size=8, threads=1, ops="triton", speculation="off",
    )  # fmt: skip
    drawn = []
    for graphs in (False, True):
        runner = random_runner(ONE_LAYER, config, seed=5)
        if graphs:
            runner._graphs = Uncaptured(runner.model, runner.rows, runner.sampler)
            runner.warm_up()
            assert set(runner._graphs._draws) == {(4, False), (4, True)}, "masked, among all tokens and among some"
        results = Offline(config, runner).generate(prompts, params)
        drawn.append([result.token_ids for result in results])
    made = runner._graphs
    assert made.steps > 12, "the warm-up runs decode steps too"
    assert made.captures == len(made._graphs) + len(made._draws), "a bucket that gets no graph is not tried again"
    assert drawn[0] == drawn[1]
    assert [len(tokens) for tokens in drawn[0]] == [4, 5, 3]


@pytest.mark.kernels
def test_masked_rows_draw_in_a_graph_what_they_draw_without_one() -> None:
    """One row under a mask, one filtered, one free, one padded; the token stands in its row afterwards."""
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=24, max_num_seqs=4,
        max_batched_tokens=32, kv_cache_bytes=1 << 18, block_size=8, threads=1, ops="triton", speculation="off",
    )  # fmt: skip
    allowed = [3, 40, TINY.vocab - 1]
    bits = np.zeros((1, -(-TINY.vocab // 32)), np.int32)
    for token in allowed:
        bits[0, token // 32] |= np.uint32(1 << token % 32).view(np.int32)
    drawn = []
    for graphs in (False, True):
        runner = random_runner(ONE_LAYER, config, seed=5)
        if graphs:
            runner._graphs = Uncaptured(runner.model, runner.rows, runner.sampler)
        for row in range(3):
            runner.add(row, [row + 1], SamplingParams(temperature=row, seed=9, top_k=5 if row == 1 else 0), 1)
        rows = np.arange(3, dtype=np.int32)
        zero, one = np.zeros(3, np.int32), np.ones(3, np.int32)
        blocks = [(row, 0, [row + 1]) for row in range(3)]
        step = StepPlan(rows, zero, one, sample=one > 0, new_blocks=blocks, late=True)
        pending = runner.launch(step)
        pending.draw(TokenMasks(np.array([1]), bits))
        tokens = pending.wait().tokens.tolist()
        assert runner.rows.tokens[:3, 1].tolist() == tokens
        drawn.append(tokens)
    assert len(runner._graphs._draws) == 1
    assert drawn[0] == drawn[1]
    assert drawn[0][1] in allowed
