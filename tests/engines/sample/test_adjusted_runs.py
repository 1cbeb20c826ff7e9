"""Adjustments in the whole engine: rows of a real batch, with their history in the runner's table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from engines.native.config import EngineConfig
from engines.native.kernels import sampling
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.sample import adjust
from engines.native.sample.sampler import Sampler
from engines.native.sample.triton_sampler import TritonSampler
from evaluation.benchmarks.random_model import TINY, random_runner

PROMPTS = [[5, 9, 5, 9, 3], [1, 2, 3, 4] * 4, [7] * 9, [11, 12, 13]]
PARAMS = [
    SamplingParams(temperature=0.9, seed=1, max_tokens=24, no_repeat_ngram_size=2),
    SamplingParams(temperature=0, max_tokens=24, dry_multiplier=3.0, presence_penalty=0.4, repetition_penalty=1.1),
    SamplingParams(
        temperature=1.2, seed=3, max_tokens=24, allowed_token_ids=[*range(20, 30)], bad_words=[[25], [26, 27]]
    ),
    SamplingParams(temperature=1.0, seed=4, max_tokens=24, typical_p=0.5, frequency_penalty=0.7, top_p=0.9),
]


def engine(blocks: int) -> Offline:
    """With room for `blocks` blocks of 8 tokens."""
    heads = TINY.kv_heads * TINY.head_dim
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=64, max_num_seqs=4,
        max_batched_tokens=32, kv_cache_bytes=blocks * 8 * heads * 2 * 4 * TINY.layers, block_size=8, threads=1,
        swap_space_bytes=0, prefix_cache=False,
    )  # fmt: skip
    return Offline(config, random_runner(TINY, config, seed=5))


@pytest.mark.slow
def test_rows_of_a_batch_are_adjusted_by_their_own_tokens_even_after_a_preemption() -> None:
    roomy, tight = engine(40), engine(10)
    tight.generate([[1]] * 50, SamplingParams(temperature=0, max_tokens=1))  # so that it expects short answers
    together = [one.token_ids for one in roomy.generate(PROMPTS, PARAMS)]
    for prompt, params, tokens in zip(PROMPTS, PARAMS, together, strict=True):
        assert roomy.generate([prompt], params)[0].token_ids == tokens
    assert [one.token_ids for one in tight.generate(PROMPTS, PARAMS)] == together
    assert (roomy.scheduler.preemptions, tight.scheduler.preemptions > 0) == (0, True)
    pairs = list(itertools.pairwise(PROMPTS[0] + together[0]))
    new = pairs[len(PROMPTS[0]) - 1 :]
    assert all(pairs.index(pair) == len(PROMPTS[0]) - 1 + place for place, pair in enumerate(new))
    assert set(together[2]) <= {*range(20, 30)} - {25}
    assert (26, 27) not in itertools.pairwise(together[2])


def test_long_rows_are_looked_at_apart_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of many tokens does not make its neighbours as long, which would fill the memory."""
    vocab, rows, device = 150, 5, torch.device("cpu")
    table = torch.randint(0, vocab, (rows + 1, 400), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    ends = np.array([400, 3, 50, 7, 390], np.int32)
    numbers = np.arange(rows, dtype=np.int32)
    params = SamplingParams(repetition_penalty=1.3, presence_penalty=0.4, dry_multiplier=0.8, no_repeat_ngram_size=3)
    found = []
    for most in (2**22, 500):
        monkeypatch.setattr(adjust, "LOOKED_AT", most)
        sampler = Sampler(rows, vocab, device)
        sampler.look_back_at(table)
        for row, end in enumerate(ends.tolist()):
            sampler.fill(row, table[row, :end].tolist(), params, 1)
        logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(2)) * 4
        sampler.adjuster.apply(logits, numbers, ends)
        found.append(logits)
    assert torch.equal(found[0], found[1])


@pytest.mark.kernels
def test_the_gpu_sampler_draws_the_same_from_adjusted_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "BLOCK", 64)
    monkeypatch.setattr(sampling, "SEARCH_BLOCK", 128)
    vocab, rows = 150, len(PARAMS) + 1
    device = torch.device("cpu")
    table = torch.zeros(rows + 1, 64, dtype=torch.int32)
    numbers = np.arange(rows, dtype=np.int32)
    prompts = [*PROMPTS, [1]]
    ends = np.array([len(prompt) for prompt in prompts], np.int32)
    drawn = []
    for sampler in (Sampler(rows, vocab, device), TritonSampler(rows, vocab, device)):
        sampler.look_back_at(table)
        for row, (prompt, params) in enumerate(zip(prompts, [*PARAMS, SamplingParams(seed=9)], strict=True)):
            table[row, : len(prompt)] = torch.tensor(prompt)
            sampler.fill(row, prompt, params, len(prompt) - 1)
        logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(2)) * 4
        drawn.append(sampler.sample(logits, numbers, ends).tolist())
    assert drawn[0] == drawn[1]
