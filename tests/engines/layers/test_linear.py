"""Every way to keep a weight gives the product of the weight."""

from __future__ import annotations

import pytest
import torch

from engines.native.layers.linear import DenseLinear, DynamicInt8Linear, PackedLinear, TransposedLinear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 33])
@pytest.mark.parametrize(
    ("method", "error"),
    [(DenseLinear, 1e-6), (TransposedLinear, 1e-6), (PackedLinear, 1e-6), (DynamicInt8Linear, 0.02)],
)
def test_product(method, error, tokens, bias):
    torch.manual_seed(tokens)
    weight, x = torch.randn(96, 64), torch.randn(tokens, 64)
    added = torch.randn(96) if bias else None
    wanted = torch.nn.functional.linear(x.double(), weight.double(), None if added is None else added.double())
    ours = method(weight, added)(x).double()
    assert (ours - wanted).norm() / wanted.norm() < error


def test_int8_keeps_small_tokens_beside_a_huge_one():
    torch.manual_seed(0)
    weight, x = torch.randn(96, 64), torch.randn(5, 64)
    x[2] *= 1000
    wanted, ours = x @ weight.t(), DynamicInt8Linear(weight, None)(x)
    assert ((ours - wanted).norm(dim=1) / wanted.norm(dim=1)).max() < 0.03


def test_int8_of_equal_values_and_zeros():
    weight = torch.randn(8, 16)
    x = torch.stack([torch.zeros(16), torch.full((16,), 3.0)])
    torch.testing.assert_close(DynamicInt8Linear(weight, None)(x), x @ weight.t(), atol=0.2, rtol=0.02)


def test_int8_gives_a_token_the_same_whatever_is_beside_it():
    torch.manual_seed(1)
    layer, x = DynamicInt8Linear(torch.randn(96, 64), torch.randn(96)), torch.randn(7, 64) * torch.rand(7, 1)
    together = layer(x)
    assert all(torch.equal(layer(x[i : i + 1])[0], together[i]) for i in range(7))
