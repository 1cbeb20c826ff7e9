"""What a row's tokens do to its logits, against the sources: transformers, text-generation-webui, vLLM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TypicalLogitsWarper,
)

from engines.native.request import SamplingParams
from engines.native.sample.filters import CANDIDATES, typical
from engines.native.sample.history import FORBIDDEN
from engines.native.sample.sampler import Sampler

VOCAB = 12  # small, so that tokens repeat
ROWS, LONGEST = 4, 96

Histories = list[tuple[list[int], int]]
"""Per row its tokens, and how many of them are the prompt."""

tokens = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=LONGEST - 1)
looping = st.builds(  # so that long matches are common
    lambda head, unit, times, tail: (head + unit * times + tail)[-(LONGEST - 1) :],
    st.lists(st.integers(0, VOCAB - 1), max_size=8),
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9),
    st.integers(1, 60),
    st.lists(st.integers(0, VOCAB - 1), max_size=3),
)
a_history = st.one_of(tokens, looping).flatmap(lambda ids: st.tuples(st.just(ids), st.integers(1, len(ids))))
histories = st.lists(a_history, min_size=1, max_size=ROWS)


def sampler_of(rows: Histories, params: list[SamplingParams]) -> Sampler:
    table = torch.full((ROWS + 1, LONGEST), 7, dtype=torch.int32)  # what lies past a row's end is nobody's business
    sampler = Sampler(ROWS, VOCAB, torch.device("cpu"))
    sampler.look_back_at(table)
    for row, ((ids, prompt_len), chosen) in enumerate(zip(rows, params, strict=True)):
        table[row, : len(ids)] = torch.tensor(ids)
        sampler.fill(row, ids, chosen, prompt_len)
    return sampler


def adjusted(rows: Histories, params: list[SamplingParams], logits: torch.Tensor) -> torch.Tensor:
    lines = logits.clone()
    numbers = np.arange(len(rows), dtype=np.int32)
    sampler_of(rows, params).adjuster.apply(lines, numbers, np.array([len(ids) for ids, _ in rows], np.int32))
    return lines


def logits_of(seed: int, rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def forbidden(wanted: torch.Tensor) -> torch.Tensor:
    """Ours: where the source has −inf."""
    return wanted.masked_fill(wanted == -torch.inf, FORBIDDEN)


def same(ours: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(ours, wanted, rtol=1e-6, atol=1e-6)


@given(histories, st.integers(0, 99), st.sampled_from([0.5, 1.3, 2.0]))
@settings(max_examples=20, deadline=None)
def test_repetition_penalty_is_transformers(rows: Histories, seed: int, penalty: float) -> None:
    logits = logits_of(seed, len(rows))
    source = RepetitionPenaltyLogitsProcessor(penalty)
    wanted = [source(torch.tensor([ids]), logits[i : i + 1]) for i, (ids, _) in enumerate(rows)]
    params = SamplingParams(repetition_penalty=penalty)
    same(adjusted(rows, [params] * len(rows), logits), torch.cat(wanted))


@given(histories, st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_presence_and_frequency_penalties_are_openais(rows: Histories, seed: int) -> None:
    logits = logits_of(seed, len(rows))
    wanted = logits.clone()
    for line, (ids, prompt_len) in zip(wanted, rows, strict=True):
        for token in set(ids[prompt_len:]):
            line[token] -= 0.7 * ids[prompt_len:].count(token) + 0.4
    params = SamplingParams(presence_penalty=0.4, frequency_penalty=0.7)
    same(adjusted(rows, [params] * len(rows), logits), wanted)


@given(histories, st.integers(0, 99), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_no_repeat_ngram_is_transformers(rows: Histories, seed: int, size: int) -> None:
    logits = logits_of(seed, len(rows))
    source = NoRepeatNGramLogitsProcessor(size)
    params = SamplingParams(no_repeat_ngram_size=size)
    ours = adjusted(rows, [params] * len(rows), logits)
    for i, (ids, _) in enumerate(rows):
        wanted = source(torch.tensor([ids]), logits[i : i + 1])[0]
        same(ours[i], forbidden(wanted))


def dry_by_definition(ids: list[int], line: list[float], params: SamplingParams) -> list[float]:
    """text-generation-webui's DRYLogitsProcessor in plain words."""
    seen = ids[-params.dry_range :] if params.dry_range else ids
    breakers = set(params.dry_breakers)
    if seen[-1] in breakers:
        return line
    longest: dict[int, int] = {}
    for i in range(len(seen) - 1):
        following = seen[i + 1]
        if seen[i] != seen[-1] or following in breakers:
            continue
        length = 1
        while length < 50 and i - length >= 0:
            before = seen[-1 - length]
            if seen[i - length] != before or before in breakers:
                break
            length += 1
        longest[following] = max(length, longest.get(following, 0))
    lowered = list(line)
    for token, length in longest.items():
        if length >= params.dry_allowed_length:
            lowered[token] -= params.dry_multiplier * params.dry_base ** (length - params.dry_allowed_length)
    return lowered


dry_params = st.builds(
    lambda multiplier, base, allowed, span, breakers: SamplingParams(
        dry_multiplier=multiplier, dry_base=base, dry_allowed_length=allowed, dry_range=span, dry_breakers=breakers
    ),
    st.sampled_from([0.8, 2.5]),
    st.sampled_from([1.0, 1.2, 1.75]),
    st.integers(1, 6),
    st.sampled_from([0, 1, 2, 7, 40, 1000]),
    st.lists(st.integers(0, VOCAB - 1), max_size=3),
)


@given(histories, st.integers(0, 99), st.lists(dry_params, min_size=ROWS, max_size=ROWS))
@settings(max_examples=60, deadline=None)
def test_dry_is_text_generation_webuis(rows: Histories, seed: int, params: list[SamplingParams]) -> None:
    logits = logits_of(seed, len(rows))
    ours = adjusted(rows, params[: len(rows)], logits)
    for line, before, (ids, _), chosen in zip(ours, logits, rows, params, strict=False):
        wanted = torch.tensor(dry_by_definition(ids, before.tolist(), chosen))
        torch.testing.assert_close(line, wanted, rtol=1e-5, atol=1e-4)


words = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4), min_size=1, max_size=6)


@given(histories, st.integers(0, 99), words)
@settings(max_examples=50, deadline=None)
def test_bad_words_are_vllms_and_transformers(rows: Histories, seed: int, bad: list[list[int]]) -> None:
    """vLLM looks at what was generated; transformers' processor, given no more than that, does the same."""
    logits = logits_of(seed, len(rows))
    source = NoBadWordsLogitsProcessor(bad)
    ours = adjusted(rows, [SamplingParams(bad_words=bad)] * len(rows), logits)
    for i, (ids, prompt_len) in enumerate(rows):
        generated = torch.tensor([ids[prompt_len:]], dtype=torch.int64)
        wanted = source(generated, logits[i : i + 1])[0]
        same(ours[i], forbidden(wanted))


@given(st.integers(0, 999), st.floats(0.05, 0.99), st.floats(0.2, 1.9), st.floats(0.1, 6))
@settings(max_examples=60, deadline=None)
def test_typical_p_is_transformers(seed: int, mass: float, temperature: float, spread: float) -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread
    logits[1, ::3] = -torch.inf
    wanted = TypicalLogitsWarper(mass)(torch.empty(0), logits / temperature)
    rows: Histories = [([1], 1)] * 3
    ours = adjusted(rows, [SamplingParams(typical_p=mass, temperature=temperature)] * 3, logits)
    for line, other, before in zip(ours, wanted, logits, strict=True):
        kept, named = (set(np.flatnonzero(each > -torch.inf).tolist()) for each in (line, other))
        assert len(kept ^ named) <= 1  # rounding may move the edge by one token
        assert torch.equal(line[list(kept)], before[list(kept)])


def test_typical_p_leaves_greedy_rows_alone() -> None:
    logits = logits_of(0, 1)
    assert torch.equal(adjusted([([1], 1)], [SamplingParams(typical_p=0.1, temperature=0)], logits), logits)


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [0.5, 1.0])
def test_a_row_always_draws_what_is_allowed(temperature: float, top_p: float) -> None:
    """Forbidden tokens are drawn only where there is nothing else, and then among the allowed ones."""
    params = SamplingParams(
        temperature=temperature, top_p=top_p, seed=1, allowed_token_ids=[3, 5], no_repeat_ngram_size=1,
        min_tokens=9, stop_token_ids=[5], bad_words=[[7]], dry_multiplier=100.0, dry_base=4.0, dry_allowed_length=1,
    )  # fmt: skip

    def draws(ids: list[int]) -> set[int]:
        sampler = sampler_of([(ids, 1)], [params])
        end = np.array([len(ids)], np.int32)
        rows = np.zeros(1, np.int32)
        return {int(sampler.sample(logits_of(seed, 1), rows, end)) for seed in range(20)}

    assert draws([0, 5]) == {3}
    assert draws([0, 3]) <= {3, 5}
    assert draws([0, 5, 3]) <= {3, 5}
    assert draws([0, 5, 3, 3, 3, 3, 3, 3]) <= {3, 5}


def test_what_a_grammar_refuses_stays_refused() -> None:
    logits = logits_of(1, 1)
    logits[0, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]] = -torch.inf
    only_five = {"allowed_token_ids": [2, 3]}, {"min_tokens": 9, "stop_token_ids": [5, 2]}, {"no_repeat_ngram_size": 1}
    for fields in only_five:
        params = SamplingParams(temperature=0, **fields)  # type: ignore[arg-type]
        line = adjusted([([5, 2], 1)], [params], logits)[0]
        assert np.flatnonzero(line > -torch.inf).tolist() == [5]


every = st.builds(
    lambda temperature, top_p, penalty, presence, dry, ngram, bad, allowed, typical, seed: SamplingParams(
        temperature=temperature,
        top_p=top_p,
        repetition_penalty=penalty,
        presence_penalty=presence,
        dry_multiplier=dry,
        no_repeat_ngram_size=ngram,
        bad_words=bad,
        allowed_token_ids=allowed,
        typical_p=typical,
        seed=seed,
    ),
    st.sampled_from([0.0, 0.7, 1.5]),
    st.sampled_from([0.6, 1.0]),
    st.sampled_from([1.0, 1.4]),
    st.sampled_from([0.0, 0.9]),
    st.sampled_from([0.0, 1.1]),
    st.integers(0, 3),
    st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3), max_size=2),
    st.lists(st.integers(0, VOCAB - 1), max_size=5, unique=True),
    st.sampled_from([0.4, 1.0]),
    st.integers(0, 9),
)


@given(histories, st.lists(every, min_size=ROWS, max_size=ROWS), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_draw_depends_on_nothing_but_its_row(rows: Histories, params: list[SamplingParams], seed: int) -> None:
    """Not on who else is in the batch, nor on the order of lines, nor on other rows' histories being longer."""
    logits = logits_of(seed, len(rows))
    params = params[: len(rows)]
    sampler = sampler_of(rows, params)
    order = np.random.default_rng(seed).permutation(len(rows)).astype(np.int32)
    ends = np.array([len(ids) for ids, _ in rows], np.int32)
    together = sampler.sample(logits[torch.from_numpy(order).long()].clone(), order, ends[order]).tolist()
    for row, token in zip(order.tolist(), together, strict=True):
        alone = sampler_of([rows[row]], [params[row]])
        end = ends[row : row + 1]
        assert alone.sample(logits[row : row + 1].clone(), np.zeros(1, np.int32), end).tolist() == [token]


@given(st.lists(every, min_size=1, max_size=ROWS), st.integers(0, 99), st.integers(1, 20))
@settings(max_examples=6, deadline=None)
def test_a_row_that_was_preempted_draws_what_it_would_have_drawn(
    params: list[SamplingParams], seed: int, cut: int
) -> None:
    """Twenty tokens in one go, and with the rows filled again from their tokens after `cut`."""

    def run(cut: int) -> list[list[int]]:
        rows: Histories = [([3, 1, 3, row], 4) for row in range(len(params))]
        sampler = sampler_of(rows, params)
        for step in range(20):
            if step == cut:
                sampler = sampler_of(rows, params)
            numbers, end = np.arange(len(rows), dtype=np.int32), len(rows[0][0])
            logits = logits_of(100 * seed + step, len(rows))
            drawn = sampler.sample(logits, numbers, np.full(len(rows), end, np.int32))
            table = sampler.adjuster.tokens
            assert table is not None
            table[: len(rows), end] = drawn.int()
            rows = [([*ids, token], 4) for (ids, _), token in zip(rows, drawn.tolist(), strict=True)]
        return [ids for ids, _ in rows]

    assert run(cut) == run(-1)


def test_a_row_that_looks_back_without_a_table_says_so() -> None:
    sampler = Sampler(1, VOCAB, torch.device("cpu"))
    sampler.fill(0, [1], SamplingParams(no_repeat_ngram_size=2), 1)
    with pytest.raises(RuntimeError, match="no table"):
        sampler.adjuster.apply(logits_of(0, 1), np.zeros(1, np.int32), np.ones(1, np.int32))


@pytest.mark.parametrize("spread", [0.01, 5.0])
def test_typical_p_of_a_large_vocabulary_is_transformers(spread: float) -> None:
    """Flat: more tokens are kept than are looked at first. Steep: fewer."""
    vocab = 3 * CANDIDATES
    logits = torch.randn(2, vocab, generator=torch.Generator().manual_seed(3)) * spread
    ours = typical(logits, torch.ones(2, 1), torch.full((2, 1), 0.8)) > -torch.inf
    wanted = TypicalLogitsWarper(0.8)(torch.empty(0), logits) > -torch.inf
    assert (ours.sum(-1) > CANDIDATES).all() == (spread < 1)
    assert ((ours ^ wanted).sum(-1) <= 1).all()
