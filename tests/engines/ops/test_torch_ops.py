"""The operations of mixtures and of capped attention against their definition."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engines.native.layers.router import router_for
from engines.native.models.config import Moe
from engines.native.ops import row_views
from engines.native.ops.mixture import grouped_experts
from engines.native.ops.torch_ops import TorchOps
from tests.engines.test_strict import BLOCK, HEADS, KV_HEADS, SIZE, batch_of, pools


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
    keys, values = pools(24)
    q = torch.randn(30, HEADS, SIZE, generator=torch.Generator().manual_seed(1))
    table = [3, 1, 2, 9]

    def capped() -> torch.Tensor:
        return TorchOps().capped_attention(q, keys, values, batch_of([(0, 30)], [table]), 0.3, 0, 1.5)

    whole = capped()
    monkeypatch.setattr(row_views, "QUERIES", 7)
    assert torch.equal(capped(), whole)
    own_k, own_v = (
        pool[table].transpose(0, 1).flatten(1, 2)[:, :30].repeat_interleave(HEADS // KV_HEADS, 0)
        for pool in (keys, values)
    )
    scores = 1.5 * torch.tanh(q.transpose(0, 1) @ own_k.transpose(1, 2) * 0.3 / 1.5)
    scores = scores.masked_fill(torch.ones(30, 30).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(whole, (scores.softmax(-1) @ own_v).transpose(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [0, 5, 24])
def test_capped_attention_has_the_same_bits_in_every_chunk(window):
    keys, values = pools(24)
    rows, tables = [(0, 19), (30, 1), (13, 9)], [[3, 1, 2], [9, 8, 7, 6], [12, 14, 13]]
    q = torch.randn(29, HEADS, SIZE, generator=torch.Generator().manual_seed(3))
    ops = TorchOps()
    whole = ops.capped_attention(q, keys, values, batch_of(rows, tables), 0.3, window, 1.5)
    first = ops.capped_attention(q[:6], keys, values, batch_of([(0, 6)], tables[:1]), 0.3, window, 1.5)
    last = ops.capped_attention(q[6:19], keys, values, batch_of([(6, 13)], tables[:1]), 0.3, window, 1.5)
    assert torch.equal(torch.cat([first, last]), whole[:19])


@pytest.mark.parametrize("window", [0, 200])
@pytest.mark.parametrize("lengths", [[18, 30, 4], [333, 129, 700, 128, 1]])
def test_decodes_together_have_the_bits_of_each_alone_and_of_a_chunk(lengths, window):
    keys, values = pools(240)
    needs = [-(-length // BLOCK) for length in lengths]
    others = iter(torch.randperm(239 - needs[0], generator=torch.Generator().manual_seed(2)).add(1 + needs[0]).tolist())
    together = list(range(1, 1 + needs[0]))  # blocks that follow each other: alone they are read where they lie
    tables = [together, *([next(others) for _ in range(need)] for need in needs[1:])]
    q = torch.randn(len(lengths), HEADS, SIZE, generator=torch.Generator().manual_seed(4))
    ops = TorchOps()
    decodes = [(length - 1, 1) for length in lengths]
    company = ops.attention(q, keys, values, batch_of(decodes, tables), 0.3, window)
    for n, (row, table) in enumerate(zip(decodes, tables, strict=True)):
        alone = ops.attention(q[n : n + 1], keys, values, batch_of([row], [table]), 0.3, window)
        assert torch.equal(company[n : n + 1], alone)
        more = min(5, lengths[n])
        chunk = torch.cat([torch.randn(more - 1, HEADS, SIZE), q[n : n + 1]])
        last = ops.attention(chunk, keys, values, batch_of([(lengths[n] - more, more)], [table]), 0.3, window)[-1:]
        assert torch.equal(last, alone)
