"""The sampler: exact distributions, filters against their definitions, and independence from the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engines.native.request import SamplingParams
from engines.native.sample.filters import CANDIDATES, candidates
from engines.native.sample.logprobs import of_tokens
from engines.native.sample.sampler import Sampler

VOCAB = 50


def _sampler(*params: SamplingParams, prompt: list[int] | None = None, prompt_len: int | None = None) -> Sampler:
    sampler = Sampler(max(4, len(params)), VOCAB, torch.device("cpu"))
    ids = prompt or [0]
    sampler.look_back_at(torch.tensor(ids, dtype=torch.int32).repeat(max(4, len(params)), 4))
    for row, chosen in enumerate(params):
        sampler.fill(row, ids, chosen, len(ids) if prompt_len is None else prompt_len)
    return sampler


def _draw(sampler: Sampler, logits: torch.Tensor, rows: list[int], positions: list[int]) -> list[int]:
    return sampler.sample(logits.clone(), np.array(rows, np.int32), np.array(positions, np.int32)).tolist()


def _random_logits(rows: int, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


def test_greedy():
    logits = _random_logits(3)
    sampler = _sampler(*[SamplingParams(temperature=0)] * 3)
    assert _draw(sampler, logits, [0, 1, 2], [5, 6, 7]) == logits.argmax(-1).tolist()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7, seed=3),
        SamplingParams(temperature=1.3, seed=4, top_k=8),
        SamplingParams(temperature=1.0, seed=5, top_p=0.8),
        SamplingParams(temperature=1.0, seed=6, min_p=0.1),
    ],
)
def test_a_draw_does_not_depend_on_the_batch(params):
    others = [SamplingParams(temperature=0), SamplingParams(temperature=1.0, seed=9, top_p=0.5)]
    sampler = _sampler(*others, params)
    logits = _random_logits(3)
    together = _draw(sampler, logits, [0, 1, 2], [10, 20, 30])
    alone = _draw(_sampler(params), logits[2:], [0], [30])
    assert together[2] == alone[0]


def test_draws_follow_the_softmax_and_its_filters():
    """20,000 draws at as many positions; the greatest deviation of a frequency is within five standard errors."""
    count = 20_000
    row = torch.tensor([2.0, 1.5, 1.0, 0.0, -1.0, *([-6.0] * (VOCAB - 5))])
    for params, kept in [
        (SamplingParams(temperature=0.8, seed=1), VOCAB),
        (SamplingParams(temperature=0.8, seed=2, top_k=3), 3),
        (SamplingParams(temperature=0.8, seed=3, top_p=0.75), 2),
        (SamplingParams(temperature=0.8, seed=4, min_p=0.2), 3),
    ]:
        wanted = torch.softmax(row / params.temperature, -1)
        wanted[kept:] = 0
        wanted /= wanted.sum()
        sampler = _sampler(params)
        drawn = sampler.sample(row.repeat(count, 1), np.zeros(count, np.int32), np.arange(count, dtype=np.int32))
        shares = torch.bincount(drawn, minlength=VOCAB) / count
        assert shares[kept:].sum() == 0
        assert ((shares - wanted).abs() / (wanted * (1 - wanted) / count).sqrt().clamp(min=1e-4)).max() < 5, params


def _by_definition(row: torch.Tensor, top_k: int, top_p: float, min_p: float) -> set[int]:
    probabilities = torch.softmax(row.double(), -1)
    order = probabilities.argsort(descending=True).tolist()
    kept = [token for token in order if probabilities[token] >= min_p * probabilities.max()]
    kept = kept[:top_k] if top_k else kept
    total, mass, chosen = float(probabilities[kept].sum()), 0.0, set()
    for token in kept:
        if mass >= top_p * total and chosen:
            break
        chosen.add(token)
        mass += float(probabilities[token])
    return chosen


@pytest.mark.parametrize("seed", range(20))
def test_filters_equal_their_definition(seed):
    random = np.random.default_rng(seed)
    vocab = int(random.choice([VOCAB, 3 * CANDIDATES]))
    logits = _random_logits(4, seed, vocab) * float(random.choice([0.01, 1.0, 3.0]))
    top_k = random.choice([0, 1, 5, vocab + 3], 4).astype(np.int64)
    top_p = torch.tensor(random.choice([0.1, 0.5, 0.93, 1.0], 4), dtype=torch.float32)
    min_p = torch.tensor(random.choice([0.0, 0.05, 0.5], 4), dtype=torch.float32)
    values, ids = candidates(logits, (top_k, top_p, min_p))
    for row in range(4):
        ours = {int(token) for token, value in zip(ids[row], values[row], strict=True) if value > -torch.inf}
        wanted = _by_definition(logits[row], int(top_k[row]), float(top_p[row]), float(min_p[row]))
        if ours != wanted:  # rounding may move the edge by one token of the sorted list
            assert len(ours ^ wanted) == 1


def test_penalties_count_prompt_and_output_as_defined():
    params = SamplingParams(temperature=0, repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    prompt, output = [1, 2, 2], [3, 3, 4]
    sampler = _sampler(params, prompt=prompt + output, prompt_len=3)
    logits = torch.ones(1, VOCAB)
    logits[0, 2] = -1.0
    sampler.adjuster.apply(logits, np.array([0], np.int32), np.array([6], np.int32))
    assert logits[0, 0] == 1.0
    assert logits[0, 1] == 0.5  # in the prompt: repetition alone
    assert logits[0, 2] == -2.0
    assert logits[0, 3] == 0.5 - 0.5 - 2 * 0.25
    assert logits[0, 4] == 0.5 - 0.5 - 0.25


def test_drawn_tokens_are_counted_until_the_row_changes_hands():
    params = SamplingParams(temperature=0, presence_penalty=2.0)
    sampler = _sampler(params)
    logits = torch.zeros(1, VOCAB)
    logits[0, :3] = torch.tensor([1.0, 0.9, 0.8])
    table = torch.zeros(1, 8, dtype=torch.int32)
    sampler.look_back_at(table)
    for at, wanted in ((1, 0), (2, 1), (3, 2)):
        assert _draw(sampler, logits, [0], [at]) == [wanted]
        table[0, at] = wanted
    sampler.fill(0, [5], SamplingParams(temperature=0), 1)
    assert _draw(sampler, logits, [0], [1]) == [0]


def test_bias_and_barred_stop_tokens():
    params = SamplingParams(temperature=0, logit_bias={7: 100.0}, min_tokens=2, stop_token_ids=[7])
    sampler = _sampler(params, prompt=[0, 0, 0])
    logits = _random_logits(1)
    best = int(logits[0].argmax())
    assert best != 7
    assert [_draw(sampler, logits, [0], [at])[0] for at in (3, 4, 5)] == [best, best, 7]


def test_logprobs_are_those_of_the_raw_distribution():
    logits = _random_logits(2)
    own, top = of_tokens(logits, torch.tensor([3, 4]), 5)
    wanted = torch.log_softmax(logits.double(), -1)
    assert own == pytest.approx([wanted[0, 3].item(), wanted[1, 4].item()], abs=1e-5)
    values, ids = wanted.topk(5, -1)
    assert [ids_of for ids_of, _ in top] == ids.tolist()
    assert top[1][1] == pytest.approx(values[1].tolist(), abs=1e-5)
