"""The operations of mixtures and of capped attention against their definition."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engines.native.layers.router import router_for
from engines.native.models.config import Moe
from engines.native.ops import capped
from engines.native.ops.mixture import grouped_experts
from engines.native.ops.row_views import RowView
from engines.native.ops.strict_ops import StrictOps
from engines.native.ops.torch_ops import TorchOps
from tests.engines.test_strict import HEADS, SIZE, batch_of, pools


@pytest.mark.parametrize("tokens", [1, 2, 40])
def test_experts_are_the_sum_of_each_tokens_own(tokens):
    generator = torch.Generator().manual_seed(tokens)
    x, shares = torch.randn(tokens, 12, generator=generator), torch.rand(tokens, 3, generator=generator)
    gate_up, down = torch.randn(7, 20, 12, generator=generator), torch.randn(7, 12, 10, generator=generator)
    chosen = torch.rand(tokens, 7, generator=generator).topk(3).indices
    wanted = torch.zeros(tokens, 12)
    for token in range(tokens):
        for share, expert in zip(shares[token], chosen[token], strict=True):
            gate, up = (gate_up[expert] @ x[token]).chunk(2)
            wanted[token] += share * (down[expert] @ (F.silu(gate) * up))
    torch.testing.assert_close(grouped_experts(x, shares, chosen, gate_up, down), wanted, rtol=1e-4, atol=1e-4)


def test_a_token_goes_only_to_the_best_groups_and_the_bias_steers_but_does_not_weigh():
    moe = Moe(
        experts=6, active=2, ffn=1, sparse=(True,), scoring="sigmoid", groups=3, top_groups=1, group_best=2,
        correction=True, scale=2.5,
    )  # fmt: skip
    logits = torch.tensor([[3.0, -3.0, 1.0, 1.0, 0.0, 0.0]])
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.4, 0.4])
    shares, experts = router_for(moe, torch.eye(6), bias)(logits)
    assert sorted(experts[0].tolist()) == [4, 5]  # 1.8 beside 1.46 and 0.95 + 0.05
    torch.testing.assert_close(shares, torch.tensor([[1.25, 1.25]]))


def test_a_long_chunk_in_pieces_is_the_same(monkeypatch):
    q, k, v = (torch.randn(count, 30, 8, generator=torch.Generator().manual_seed(1)) for count in (4, 2, 2))
    view = RowView(0, 30, slice(0, 30), None, True)
    whole = capped.attend(q.transpose(0, 1), k, v, view, 0.3, 1.5)
    monkeypatch.setattr(capped, "SCORES", 4 * 30 * 7)
    torch.testing.assert_close(capped.attend(q.transpose(0, 1), k, v, view, 0.3, 1.5), whole)
    scores = 1.5 * torch.tanh(q @ k.repeat_interleave(2, 0).transpose(1, 2) * 0.3 / 1.5)
    scores = scores.masked_fill(torch.ones(30, 30).triu(1).bool(), -torch.inf)
    wanted = scores.softmax(-1) @ v.repeat_interleave(2, 0)
    torch.testing.assert_close(whole, wanted.transpose(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [0, 5, 24])
def test_capped_attention_is_the_same_in_strict_mode_and_of_the_same_bits_in_every_chunk(window):
    keys, values = pools(24)
    rows, tables = [(0, 19), (30, 1), (13, 9)], [[3, 1, 2], [9, 8, 7, 6], [12, 14, 13]]
    q = torch.randn(29, HEADS, SIZE, generator=torch.Generator().manual_seed(3))
    strict, loose = StrictOps(), TorchOps()
    whole = strict.capped_attention(q, keys, values, batch_of(rows, tables), 0.25, window, 1.5)
    torch.testing.assert_close(
        whole, loose.capped_attention(q, keys, values, batch_of(rows, tables), 0.25, window, 1.5)
    )
    first = strict.capped_attention(q[:6], keys, values, batch_of([(0, 6)], tables[:1]), 0.25, window, 1.5)
    last = strict.capped_attention(q[6:19], keys, values, batch_of([(6, 13)], tables[:1]), 0.25, window, 1.5)
    assert torch.equal(torch.cat([first, last]), whole[:19])


def test_capped_decodes_together_equal_each_alone():
    keys, values = pools(24)
    rows, tables = [(18, 1), (30, 1), (4, 1)], [[3, 1, 2], [9, 8, 7, 6], [12]]
    q = torch.randn(3, HEADS, SIZE, generator=torch.Generator().manual_seed(4))
    together = TorchOps().capped_attention(q, keys, values, batch_of(rows, tables), 0.25, 0, 1.5)
    for n, (row, table) in enumerate(zip(rows, tables, strict=True)):
        alone = TorchOps().capped_attention(q[n : n + 1], keys, values, batch_of([row], [table]), 0.25, 0, 1.5)
        torch.testing.assert_close(together[n : n + 1], alone)
