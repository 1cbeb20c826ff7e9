from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.vocabulary.choice import rows_needed
from engines.native.vocabulary.tables import grown


@pytest.mark.parametrize(("rows", "used", "needed"), [(100, 100, 100), (100, 101, 128), (128, 70, 128), (64, 129, 192)])
def test_rows_come_in_multiples_of_64_where_the_table_grows(rows, used, needed):
    assert rows_needed(rows, used) == needed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_old_rows_stay_bit_for_bit_and_new_ones_are_means(dtype):
    old = torch.randn(10, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    made = grown(old, 10, [[1, 2, 2], [9]], 64)
    assert made.dtype == dtype
    assert torch.equal(made[:10], old)
    assert torch.equal(made[10], (old[[1, 2, 2]].double().sum(0) / 3).to(dtype))
    assert torch.equal(made[11], old[9])
    assert torch.equal(made[12:], old.double().mean(0).to(dtype).expand(52, -1))


def test_rows_that_the_table_had_beyond_its_ids_are_used_first():
    """Qwen's embedding has more rows than its tokenizer has ids."""
    old = torch.arange(20.0).view(10, 2)
    made = grown(old, 7, [[0, 1]], 10)
    assert torch.equal(made[7], torch.tensor([1.0, 2.0]))
    assert torch.equal(made[[*range(7), 8, 9]], old[[*range(7), 8, 9]])


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 19), min_size=2, max_size=6), min_size=1, max_size=8), st.integers(0, 2**20))
def test_no_new_token_wins_a_greedy_step(pieces, seed):
    """What docs/domain-tokens.md promises: the greatest logit stays an old one's, padding rows included."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(20, 16, generator=generator)
    made = grown(head, 20, pieces, 64)
    logits = torch.randn(50, 16, generator=generator) @ made.T
    assert torch.equal(logits.argmax(1), logits[:, :20].argmax(1))
