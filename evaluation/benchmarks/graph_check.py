"""Decode graphs beside the same engine without them, on a GPU: token ids must be equal, drawn or greedy. And kernels
that start while the one before them ends beside the same kernels one after the other.

    python -m evaluation.benchmarks.graph_check

Ragged prompts in float32 (in bfloat16 padding changes the last bits of a product, and near ties with them), more
requests than rows, chunks of prompts beside decodes, stop tokens that end a request while its next step is on its way,
temperatures, filters, penalties and log-probabilities mixed in one batch. The second comparison is in bfloat16, where
products of few rows are our own, and twice over: what reads too early reads something else each time.
"""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import torch

from engines.native.config import EngineConfig
from engines.native.kernels import attention, fused, linear, sampling
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from evaluation.benchmarks import shapes
from evaluation.benchmarks.engine_agreement import SMOL
from evaluation.benchmarks.random_model import random_runner


def runner(graphs: bool, kv_tokens: int) -> tuple[EngineConfig, ModelRunner]:
    config = EngineConfig(
        speculation="off", format="safetensors", paths={}, device="cuda", dtype="float32", max_model_len=900,
        max_num_seqs=24,
        max_batched_tokens=256, kv_cache_bytes=2 * SMOL.layers * SMOL.kv_size * 4 * kv_tokens,
    )  # fmt: skip
    made = random_runner(replace(SMOL, layers=6), config, seed=3)
    if not graphs:
        made._graphs, made.depth = None, 1
    return config, made


def requests(count: int) -> tuple[list[list[int]], list[SamplingParams]]:
    chooser = random.Random(5)
    prompts, params = [], []
    for index in range(count):
        prompts.append([chooser.randrange(SMOL.vocab) for _ in range(chooser.choice((1, 3, 17, 64, 200, 500)))])
        one = SamplingParams(temperature=0, max_tokens=chooser.choice((1, 2, 20, 60, 120)), seed=index)
        kind = index % 6
        if kind == 1:
            one = replace(one, temperature=0.8)
        elif kind == 2:
            one = replace(one, temperature=1.2, top_p=0.9, top_k=50)
        elif kind == 3:
            one = replace(one, stop_token_ids=[chooser.randrange(SMOL.vocab) for _ in range(16)], temperature=5.0)
        elif kind == 4 and index % 12 == 4:
            one = replace(one, temperature=0.7, presence_penalty=0.5, repetition_penalty=1.2)
        elif kind == 5 and index % 12 == 5:
            one = replace(one, logprobs=2)
        params.append(one)
    return prompts, params


def dependent_launches() -> int:
    """Requests whose tokens change with the way kernels are launched; two layers of Llama-3.1-8B's shape."""
    shape = replace(shapes.shape("llama8b"), layers=2, vocab=SMOL.vocab)
    prompts = [prompt for prompt in requests(40)[0] if len(prompt) < 300]
    params = [SamplingParams(temperature=0, max_tokens=100) for _ in prompts]
    results = []
    for follows in (False, True, True):
        with ExitStack() as stack:
            for module in (attention, fused, linear, sampling):
                stack.enter_context(patch.object(module, "dependent", lambda _, follows=follows: follows))
            config = EngineConfig(
                speculation="off",
                format="safetensors", paths={}, device="cuda", dtype="bfloat16", max_model_len=900, max_num_seqs=64,
                max_batched_tokens=1024, prefix_cache=False, kv_cache_bytes=1 << 29,
            )  # fmt: skip
            engine = Offline(config, random_runner(shape, config, seed=4))
            results.append([each.token_ids for each in engine.generate(prompts, params)])
    wrong = sum(not a == b == c for a, b, c in zip(*results, strict=True))
    print(f"dependent launches: {wrong} of {len(prompts)} requests differ from plain launches or between two runs")
    return wrong


def main() -> int:
    if not torch.cuda.is_available():
        print("graph_check needs a GPU")
        return 2
    wrong = 0
    for name, kv_tokens in (("room for all", 40_000), ("a small pool", 2_400)):
        prompts, params = requests(60)
        results = []
        for graphs in (False, True):
            config, made = runner(graphs, kv_tokens)
            engine = Offline(config, made)
            results.append(engine.generate(prompts, params))
            problems = engine.scheduler.check()
            print(f"{name}, graphs {graphs}: {engine.scheduler.preemptions} preemptions, {problems or 'pools clean'}")
            wrong += bool(problems)
        for index, (plain, graphed) in enumerate(zip(*results, strict=True)):
            if plain.token_ids != graphed.token_ids or plain.finish != graphed.finish:
                wrong += 1
                same = next(
                    (i for i, (a, b) in enumerate(zip(plain.token_ids, graphed.token_ids, strict=False)) if a != b), -1
                )
                print(f"  request {index} ({len(prompts[index])} in): differs from token {same} on; {params[index]}")
    wrong += dependent_launches()
    print(f"graph_check: {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
