"""The product with a table in 8 bits against float64, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from engines.native.kernels.int8_head import int8_head
from engines.native.layers.embedding import Int8Table
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize(
    ("tokens", "vocab", "hidden"), [(1, 64, 32), (3, 130, 96), (17, 65, 200), (70, 96, 64)], ids=str
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float16, 1e-3)], ids=str)
def test_product(tokens, vocab, hidden, dtype, tolerance):
    torch.manual_seed(tokens)
    kept = Int8Table.of(torch.randn(vocab, hidden))
    x = torch.randn(tokens, hidden).to(dtype)
    wanted = x.double() @ (kept.values.double() * kept.scales[:, None].double()).t()
    got = int8_head(x, kept.values, kept.scales)
    assert got.dtype == dtype
    assert relative_error(got, wanted) < tolerance


def test_rows_that_are_cut_out_of_others():
    kept = Int8Table.of(torch.randn(64, 32))
    x = torch.randn(4, 64)[:, :32]
    assert relative_error(int8_head(x, kept.values, kept.scales), x.double() @ _float(kept).t()) < 1e-6


def test_no_rows():
    kept = Int8Table.of(torch.randn(64, 32))
    assert int8_head(torch.empty(0, 32), kept.values, kept.scales).shape == (0, 64)


def _float(kept: Int8Table) -> torch.Tensor:
    return kept.values.double() * kept.scales[:, None].double()
