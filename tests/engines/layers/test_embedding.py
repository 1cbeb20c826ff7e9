"""The embedding table in 8 bits, and the head that shares it."""

from __future__ import annotations

import pytest
import torch

from engines.native.layers.embedding import Int8Embedding, Int8Head, Int8Table


def _table(vocab: int, hidden: int) -> torch.Tensor:
    torch.manual_seed(vocab)
    return torch.randn(vocab, hidden) * torch.logspace(-3, 2, vocab)[:, None]  # rows of very different size


def test_each_row_is_within_half_a_step():
    table = _table(5000, 48)  # more than one band
    kept = Int8Table.of(table)
    assert (kept.values.dtype, kept.values.shape, kept.scales.shape) == (torch.int8, (5000, 48), (5000,))
    rows = Int8Embedding(kept, torch.float32)(torch.arange(5000))
    step = table.abs().amax(dim=1) / 127
    assert ((rows - table).abs() <= step[:, None] * 0.501).all()
    assert (kept.values.abs().amax(dim=1) == 127).all()


def test_a_row_of_zeros_stays_zero():
    assert (Int8Embedding(Int8Table.of(torch.zeros(2, 8)), torch.float32)(torch.tensor([1])) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_rounded_once_to_the_activations(dtype):
    kept = Int8Table.of(_table(64, 32).to(dtype))
    ids = torch.tensor([3, 3, 63, 0])
    wanted = (kept.values[ids].double() * kept.scales[ids][:, None].double()).to(torch.float32).to(dtype)
    got = Int8Embedding(kept, dtype)(ids)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_the_tied_head_is_the_product_with_the_same_table(tokens, monkeypatch):
    monkeypatch.setattr("engines.native.layers.embedding._BAND_BYTES", 48 * 4 * 100)  # bands of 100 rows, and a rest
    kept = Int8Table.of(_table(1037, 48))
    x = torch.randn(tokens, 48)
    wanted = x.double() @ (kept.values.double() * kept.scales[:, None].double()).t()
    torch.testing.assert_close(Int8Head(kept, torch.float32)(x).double(), wanted, rtol=1e-5, atol=1e-4)
