"""The sampler of a GPU and the decode graphs' body, in Triton's interpreter: a step with a grammar in it is drawn
outside the graph, and only what the grammar allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.native.config import EngineConfig
from engines.native.decode_graph import DecodeGraphs
from engines.native.grammar import sources
from engines.native.grammar.constraints import Constraints
from engines.native.grammar.spec import Grammar
from engines.native.offline import Offline
from engines.native.request import Finish, SamplingParams
from evaluation.benchmarks.random_model import TINY, random_runner
from tests.engines.grammar.tokens import END, SIZE, TOKENS, compiler

CONFIG = EngineConfig(
    format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=24, max_num_seqs=4,
    max_batched_tokens=32, kv_cache_bytes=1 << 18, block_size=8, threads=1, ops="triton",
)  # fmt: skip
FREE = SamplingParams(temperature=0.8, seed=2, max_tokens=9)
BOUND = SamplingParams(
    temperature=1.0, seed=3, max_tokens=4, stop_token_ids=[END], grammar=Grammar(sources.from_choice(["ab", "cd"]))
)


class _Counting(DecodeGraphs):
    """Runs the body that would be captured, and counts: steps that draw inside, and steps that end at the logits."""

    drawn = ended = 0

    def capture(self, compute, what):
        return None

    def launch(self, plan):
        tokens = super().launch(plan)
        self.drawn += tokens is not None
        return None if tokens is None else tokens.clone()  # as the copy to the host of a GPU

    def logits(self, plan):
        assert plan.masks is not None or plan.late
        self.ended += 1
        return super().logits(plan)


@pytest.mark.slow
@pytest.mark.kernels
def test_a_grammar_beside_a_graph() -> None:
    drawn = []
    for depth, params in ((1, [FREE]), (1, [FREE, BOUND]), (2, [FREE, BOUND])):
        runner = random_runner(replace(TINY, layers=1, windows=(0,), vocab=SIZE), CONFIG, seed=5)
        runner.depth = depth
        runner._graphs = graphs = _Counting(runner.model, runner.rows, runner.sampler)
        engine = Offline(CONFIG, runner)
        engine.scheduler.constraints = Constraints(compiler())
        drawn.append(engine.generate([[1, 2, 3]] * len(params), params))
        assert graphs.drawn > 0, "a step without a grammar in it is drawn in the graph"
        assert (graphs.ended > 0) == (len(params) > 1), "one with a grammar in it is the graph's as far as its logits"
    (alone,), (beside, bound), overlapped = drawn
    assert beside.token_ids == alone.token_ids
    assert [each.token_ids for each in overlapped] == [beside.token_ids, bound.token_ids]
    assert b"".join(TOKENS[token] for token in bound.token_ids) in (b"ab", b"cd")
    assert bound.finish is Finish.STOP
