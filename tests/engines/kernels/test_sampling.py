"""The sampling kernels against a sort-based float64 reference, in the interpreter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels import sampling
from engines.native.sample.noise import gumbel
from tests.engines.kernels import reference

pytestmark = pytest.mark.kernels

SIZE = 150


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks per row at a vocabulary that the interpreter can afford."""
    monkeypatch.setattr(sampling, "BLOCK", 64)
    monkeypatch.setattr(sampling, "SEARCH_BLOCK", 128)
    monkeypatch.setattr(sampling, "KEPT", 32)
    torch.manual_seed(7)


def draw(logits, table, positions=None, rows=None, **flags):
    rows = torch.arange(logits.shape[0], dtype=torch.int32) if rows is None else rows
    positions = torch.arange(5, 5 + logits.shape[0]) if positions is None else positions
    flags = {"penalties": False, "bias": False, "filters": False} | flags
    return sampling.sample(logits, rows, positions, table, **flags), rows, positions


def test_noise_is_the_shared_definition():
    """With equal scores the draw is the argmax of the noise: it must be that of `noise.gumbel`, row by row."""
    table = reference.sampling_table(4, SIZE)
    table.seed.copy_(torch.tensor([0, -1, 2**40 + 17, 123456789]))
    (tokens, _), _, positions = draw(torch.zeros(4, SIZE), table)
    assert torch.equal(tokens.long(), gumbel(table.seed, positions, torch.arange(SIZE)).argmax(-1))


def test_greedy_is_argmax_with_the_lowest_id_first_and_gives_the_models_logprob():
    logits = torch.randn(3, SIZE) * 4
    logits[1, [140, 20, 77]] = 50.0
    table = reference.sampling_table(3, SIZE, temperature=[0.0] * 3, top_k=[1] * 3)
    (tokens, logprobs), _, _ = draw(logits, table, filters=True)
    assert tokens.tolist() == [int(logits[0].argmax()), 20, int(logits[2].argmax())]
    wanted = logits.double().log_softmax(-1).gather(1, tokens.long()[:, None])[:, 0]
    torch.testing.assert_close(logprobs.double(), wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_draws_equal_the_reference(data):
    seed = data.draw(st.integers(0, 999))
    torch.manual_seed(seed)
    n = 2
    table = reference.sampling_table(
        n,
        SIZE,
        temperature=data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5]), min_size=n, max_size=n)),
        top_k=data.draw(st.lists(st.sampled_from([0, 1, 7, SIZE, 10_000]), min_size=n, max_size=n)),
        top_p=data.draw(st.lists(st.sampled_from([1.0, 0.9, 0.3, 1e-6]), min_size=n, max_size=n)),
        min_p=data.draw(st.lists(st.sampled_from([0.0, 0.05, 1.0]), min_size=n, max_size=n)),
        repetition=data.draw(st.lists(st.sampled_from([1.0, 1.3]), min_size=n, max_size=n)),
        presence=data.draw(st.lists(st.sampled_from([0.0, 1.5]), min_size=n, max_size=n)),
        frequency=data.draw(st.lists(st.sampled_from([0.0, -0.7]), min_size=n, max_size=n)),
        bias=[{3: 5.0, 9: -100.0}, {}],
    )
    table.barred_ids[1], table.barred_len[1] = torch.tensor([40, 41]), 2
    table.first_stop[1] = data.draw(st.sampled_from([0, 6, 7]))
    logits = torch.randn(n, SIZE) * data.draw(st.sampled_from([0.5, 3.0]))
    (tokens, _), _, positions = draw(logits, table, penalties=True, bias=True, filters=True)
    for line in range(n):
        reference.assert_drawn(logits[line], table, line, int(positions[line]), int(tokens[line]))


def test_equal_scores_stay_or_fall_together():
    """A plateau across the k-th place: each of its tokens is drawn where the noise favours it, and none below it."""
    logits = torch.full((4, SIZE), -1.0)
    logits[:, 10:14] = 2.0
    table = reference.sampling_table(4, SIZE, top_k=[3] * 4)
    table.seed.fill_(11)
    positions = torch.arange(300)
    favoured = gumbel(table.seed[:1].expand(300), positions, torch.arange(10, 14)).argmax(-1)
    chosen = torch.stack([positions[favoured == i][0] for i in range(4)])
    (tokens, _), *_ = draw(logits, table, chosen, filters=True)
    assert tokens.tolist() == [10, 11, 12, 13]


def test_rows_are_lines_of_the_table_and_independent_of_the_batch():
    logits = torch.randn(3, SIZE)
    table = reference.sampling_table(6, SIZE, temperature=[1.0] * 6, top_p=[0.8, 0.5, 1.0, 0.2, 0.9, 1.0])
    rows, positions = torch.tensor([5, 0, 3], dtype=torch.int32), torch.tensor([4, 4, 4])
    (together, _), _, _ = draw(logits, table, positions, rows, filters=True)
    for i in range(3):
        (alone, _), _, _ = draw(logits[i : i + 1], table, positions[i : i + 1], rows[i : i + 1], filters=True)
        assert alone[0] == together[i]


def test_masked_and_nan_logits_never_give_an_impossible_token():
    logits = torch.full((3, SIZE), float("-inf"))
    logits[0, 33] = -7.0
    logits[1] = torch.randn(SIZE)
    logits[1, ::2] = float("nan")
    table = reference.sampling_table(3, SIZE, top_p=[0.5] * 3, top_k=[5] * 3)
    (tokens, _), _, _ = draw(logits, table, filters=True)
    assert tokens[0] == 33
    assert tokens[1] % 2 == 1
    assert all(0 <= t < SIZE for t in tokens.tolist())


def test_an_empty_step_draws_nothing():
    (tokens, logprobs), _, _ = draw(torch.empty(0, SIZE), reference.sampling_table(1, SIZE))
    assert tokens.shape == logprobs.shape == (0,)


def test_stop_tokens_do_not_come_before_their_time():
    logits = torch.zeros(2, SIZE)
    logits[:, 40] = 30.0
    table = reference.sampling_table(2, SIZE, temperature=[0.0, 0.0])
    table.barred_ids[:, 0], table.barred_len[:], table.first_stop[:] = 40, 1, 9
    (tokens, _), *_ = draw(logits, table, torch.tensor([8, 9]), bias=True)
    assert tokens.tolist() == [0, 40]
