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
from tests.engines.test_strict import BLOCK, HEADS, KV_HEADS, SIZE, batch_of, defined, pools


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


@pytest.mark.parametrize("softcap", [0.0, 1.5])
@pytest.mark.parametrize("window", [0, 200])
@pytest.mark.parametrize("block_size", [BLOCK, 16, 24])
@pytest.mark.parametrize("lengths", [[18, 30, 4], [333, 129, 700, 128, 1]])
def test_decodes_are_as_defined_and_have_the_bits_of_each_alone_and_of_a_chunk(lengths, block_size, window, softcap):
    keys, values = pools(240, block_size)
    needs = [-(-length // block_size) for length in lengths]
    others = iter(torch.randperm(239 - needs[0], generator=torch.Generator().manual_seed(2)).add(1 + needs[0]).tolist())
    together = list(range(1, 1 + needs[0]))  # blocks that follow each other: alone they are read where they lie
    tables = [together, *([next(others) for _ in range(need)] for need in needs[1:])]
    q = torch.randn(len(lengths), HEADS, SIZE, generator=torch.Generator().manual_seed(4))

    def attended(q: torch.Tensor, rows: list[tuple[int, int]], tables: list[list[int]]) -> torch.Tensor:
        batch = batch_of(rows, tables)
        if softcap:
            return TorchOps().capped_attention(q, keys, values, batch, 0.3, window, softcap)
        return TorchOps().attention(q, keys, values, batch, 0.3, window)

    company = attended(q, [(length - 1, 1) for length in lengths], tables)
    for n, (length, table) in enumerate(zip(lengths, tables, strict=True)):
        own, alone = q[n : n + 1], company[n : n + 1]
        lie = [pool[table].transpose(0, 1).flatten(1, 2)[:, :length] for pool in (keys, values)]
        torch.testing.assert_close(alone, defined(own, *lie, length - 1, window, softcap).float())
        assert torch.equal(attended(own, [(length - 1, 1)], [table]), alone)
        more = min(150, length)  # a chunk in two pieces
        chunk = torch.cat([torch.randn(more - 1, HEADS, SIZE), own])
        assert torch.equal(attended(chunk, [(length - more, more)], [table])[-1:], alone)


def test_rows_too_long_to_be_padded_are_attended_one_by_one_with_the_same_bits(monkeypatch):
    keys, values = pools(24)
    batches = [batch_of([(18, 1), (30, 1), (4, 1)], [[3, 1, 2], [9, 8, 7, 6], [12]]) for _ in range(2)]
    q = torch.randn(3, HEADS, SIZE, generator=torch.Generator().manual_seed(4))
    together = TorchOps().attention(q, keys, values, batches[0], 0.3, 0)
    monkeypatch.setattr(row_views, "GATHERED_KEYS", 40)
    assert torch.equal(TorchOps().attention(q, keys, values, batches[1], 0.3, 0), together)
    assert isinstance(batches[1].shared["rows 0"], list)


@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, 2e-2), (torch.float64, 1e-12)])
def test_sixteen_bits_are_summed_in_float32_and_doubles_in_doubles(dtype, error):
    keys, values = pools(24)
    q = torch.randn(9, HEADS, SIZE, generator=torch.Generator().manual_seed(4))
    lie = [pool[[3, 1]].transpose(0, 1).flatten(1, 2)[:, :9] for pool in (keys, values)]
    given = [each.to(dtype) for each in (q, keys, values)]
    for rows, own in (([(0, 9)], slice(0, 9)), ([(8, 1)], slice(8, 9))):
        found = TorchOps().attention(given[0][own], *given[1:], batch_of(rows, [[3, 1]]), 0.3, 0)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), defined(q, *lie, 0)[own], rtol=error, atol=error)
