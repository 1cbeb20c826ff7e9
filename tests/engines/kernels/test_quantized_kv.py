"""Keys and values in 8 bits, in the interpreter: written as plain torch writes them, and read by attention as what they
stand for. The references are exact on the rounded values, so tolerances are those of attention alone."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels.attention import paged_attention
from engines.native.kernels.attention_plan import Device, Launch, Workspace, plan
from engines.native.kernels.quantized_pages import widen_pages
from engines.native.kernels.quantized_write import quantized_rope_and_cache
from engines.native.ops import quantized_kv_triton
from engines.native.ops.base import Batch
from engines.native.ops.quantized_kv_triton import LONG
from engines.native.quantized_kv import Fp8Pool, Int8Pool, QuantizedPool
from tests.engines.kernels import reference

pytestmark = pytest.mark.kernels

KINDS = ["fp8", "int8"]
EPS = 1e-5


def pool_of(cache: torch.Tensor, kind: str, scale: float = 1.0) -> QuantizedPool:
    """`cache` [B, hk, s, d] rounded; where it holds NaN, bytes and scales are left as garbage."""
    blocks, heads, page, _ = cache.shape
    values = torch.full(cache.shape, 0x7F, dtype=torch.int8)
    if kind == "fp8":
        scales = (torch.rand(heads) + 0.5) * cache.nan_to_num().abs().amax() / 300 * scale
        pool: QuantizedPool = Fp8Pool(values, scales, cache.dtype)
    else:
        pool = Int8Pool(values, torch.full((blocks, heads, page), torch.nan), cache.dtype)
    known = ~cache[:, 0, :, 0].isnan().flatten()
    pool.write(torch.nonzero(known)[:, 0], cache.transpose(1, 2).flatten(0, 1)[known])
    return pool


def meant(pool: QuantizedPool) -> torch.Tensor:
    """[B, hk, s, d] float64."""
    if isinstance(pool, Fp8Pool):
        return pool.values.view(torch.float8_e4m3fn).double() * pool.scales.double()[:, None, None]
    return pool.values.double() * pool.scales.double()[..., None]


def run(case: reference.Paged, kind: str, *, window: int = 0, softcap: float = 0.0, split: int = 0):
    """(output, float64 reference on the rounded keys and values, the workspace)."""
    scale, workspace = case.q.shape[2] ** -0.5, Workspace(case.q.device)
    launch = plan_of(case, window)
    if split:
        launch = replace(launch, split_tokens=split, splits=-(-case.max_seq // split))
    keys, values = pool_of(case.k_cache, kind), pool_of(case.v_cache, kind)
    out = torch.full_like(case.q, float("nan"))
    paged_attention(
        case.q, keys, values, out, case.cu_query, case.seq_lens, case.block_tables,
        scale=scale, window=window, launch=launch, workspace=workspace, softcap=softcap,
    )  # fmt: skip
    read = replace(case, k_cache=meant(keys), v_cache=meant(values))
    return out, reference.attention(read, scale, window, softcap), workspace


def plan_of(case: reference.Paged, window: int = 0) -> Launch:
    return plan(
        tokens=case.q.shape[0], rows=case.seq_lens.numel(), group=case.q.shape[1] // case.k_cache.shape[1],
        kv_heads=case.k_cache.shape[1], head_dim=case.q.shape[2], max_query=case.max_query, max_seq=case.max_seq,
        window=window, dtype=case.q.dtype, device=Device.of(case.q.device), pairs=True,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("query_lens", "seq_lens"),
    [([1, 1], [23, 7]), ([13], [13]), ([5, 9], [21, 9]), ([1, 6, 1], [17, 6, 0])],
    ids=["decode", "prompt", "chunks", "mixed and padded"],
)
def test_equals_the_reference(query_lens, seq_lens, kind):
    case = reference.paged_case(query_lens, seq_lens, heads=4, kv_heads=2, head_dim=32, page=4)
    out, wanted, _ = run(case, kind)
    assert reference.relative_error(out, wanted) < 1e-5


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_ragged_shapes(data):
    rows = data.draw(st.integers(1, 3))
    seq_lens = data.draw(st.lists(st.integers(1, 24), min_size=rows, max_size=rows))
    group, kv_heads = data.draw(st.sampled_from([(1, 2), (3, 1), (2, 2)]))
    case = reference.paged_case(
        [data.draw(st.integers(1, n)) for n in seq_lens], seq_lens, heads=group * kv_heads, kv_heads=kv_heads,
        head_dim=data.draw(st.sampled_from([16, 24, 32])), page=data.draw(st.sampled_from([1, 4, 16])),
        seed=data.draw(st.integers(0, 99)),
    )  # fmt: skip
    out, wanted, _ = run(case, data.draw(st.sampled_from(KINDS)), window=data.draw(st.sampled_from([0, 0, 5])))
    assert reference.relative_error(out, wanted) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("query_lens", [[1, 1], [40, 2]], ids=["decode", "prompt"])
def test_splits_are_merged(query_lens, kind):
    case = reference.paged_case(query_lens, [130, 33], heads=2, kv_heads=1, head_dim=16, page=16)
    out, wanted, workspace = run(case, kind, split=32)
    assert reference.relative_error(out, wanted) < 1e-5
    assert not workspace.arrived.any(), "counters must be zero for the next launch"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [0, 30])
def test_long_chunks_read_pages_that_were_widened(kind, window, monkeypatch):
    case = reference.paged_case([LONG, 3], [LONG + 20, 9], heads=2, kv_heads=1, head_dim=24, page=4)
    keys, values = pool_of(case.k_cache, kind), pool_of(case.v_cache, kind)
    widened = []
    monkeypatch.setattr(
        quantized_kv_triton, "widen_pages", lambda *given: widened.append(widen_pages(*given)) or widened[-1]
    )
    batch = Batch(
        token_ids=case.cu_query, positions=case.cu_query, slots=case.cu_query, cu_query=case.cu_query,
        seq_lens=case.seq_lens, block_tables=case.block_tables, logits_index=None, max_query=case.max_query,
        max_seq=case.max_seq,
    )  # fmt: skip
    out = quantized_kv_triton.QuantizedKvTritonOps().attention(case.q, keys, values, batch, 0.3, window)
    read = replace(case, k_cache=meant(keys), v_cache=meant(values))
    assert reference.relative_error(out, reference.attention(read, 0.3, window, 0.0)) < 1e-5
    assert [len(each) for each in widened[0]] == [2 * (LONG + 20) // 4] * 2, "as many for each row"


def test_what_is_widened_at_once_is_bounded():
    chosen = quantized_kv_triton.QuantizedKvTritonOps()._pairs
    assert [chosen(1, LONG - 1, 8192), chosen(1, LONG, 10**6)] == [True, False]
    assert [chosen(9, LONG, 8192), chosen(8, LONG, 8192)] == [True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_capped_scores(kind):
    case = reference.paged_case([1, 9], [23, 12], heads=2, kv_heads=1, head_dim=16, page=4)
    out, wanted, _ = run(case, kind, softcap=0.8)
    assert reference.relative_error(out, wanted) < 1e-5


def test_values_of_very_different_size_are_weighed_alike():
    """Probabilities are multiplied in 16 bits on a GPU: a token of tiny values beside one of large ones must neither
    overflow nor vanish. Here one value head is 10⁶ times another."""
    case = reference.paged_case([1], [16], heads=2, kv_heads=1, head_dim=16, page=4)
    case.v_cache[case.block_tables[0, :2].long()] *= 1e-6
    case.v_cache[0] = 0
    out, wanted, _ = run(case, "int8")
    assert reference.relative_error(out, wanted) < 1e-5
    case.k_cache, case.v_cache = torch.zeros_like(case.k_cache), torch.zeros_like(case.v_cache)
    assert not run(case, "int8")[0].any()


def rope_pools(case: reference.RopeCase, kind: str) -> tuple[QuantizedPool, QuantizedPool]:
    blocks, heads, page, _ = case[4].shape

    def pool() -> QuantizedPool:
        values = torch.full(case[4].shape, 77, dtype=torch.int8)
        if kind == "fp8":
            return Fp8Pool(values, torch.rand(heads) / 50 + 0.004, case[4].dtype)
        return Int8Pool(values, torch.full((blocks, heads, page), 7.0), case[4].dtype)

    return pool(), pool()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(9, 3, 24), (2, 1, 64)])
def test_rope_and_cache_writes_what_torch_writes(heads, kv_heads, head_dim, kind):
    torch.manual_seed(heads)
    case = reference.rope_case(3, heads, kv_heads, head_dim, 4, (True, True), torch.float32)
    keys, values = rope_pools(case, kind)
    blank = [(pool.values.clone(), pool.scales.clone()) for pool in (keys, values)]
    wanted_q, k, v = reference.rope_and_cache(*case, EPS)
    beside = torch.full((3, kv_heads, head_dim), torch.nan)
    q = quantized_rope_and_cache(*case[:4], keys, values, *case[6:], EPS, beside)
    slots = case[3]
    at = slots // 4, slice(None), slots % 4
    assert reference.relative_error(q, wanted_q) < 1e-6
    assert reference.relative_error(beside, k[at]) < 1e-6
    for pool, exact, (bytes_, scales) in zip((keys, values), (k, v), blank, strict=True):
        wanted = type(pool)(bytes_, scales, torch.float32)
        wanted.write(slots, exact[at].float())
        assert reference.relative_error(pool.scales, wanted.scales) < 1e-6
        differ = (pool.values.int() - wanted.values.int()).abs()
        assert differ.max() <= 1, "one step where float32 and float64 round apart, and nothing written elsewhere"
        assert (differ > 0).float().mean() < 0.02


def test_every_e4m3_is_written_and_read_as_torch_has_it():
    """All 256 bit patterns but NaN, their middles (ties to even), and what is too large."""
    exact = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    exact = exact[~exact.isnan()].sort().values
    middles = (exact[1:] + exact[:-1]) / 2
    x = torch.cat([exact, middles, torch.tensor([500.0, -1e9, 1e-9])])
    x = torch.cat([x, x.new_zeros(-len(x) % 32)]).view(-1, 1, 32)
    tokens = len(x)
    blocks = -(-tokens // 16)
    slots = torch.arange(tokens)
    qkv = torch.cat([torch.zeros_like(x), torch.zeros_like(x), x], 1).flatten(1)
    pools = [Fp8Pool(torch.zeros(blocks, 1, 16, 32, dtype=torch.int8), torch.ones(1), torch.float32) for _ in range(3)]
    cos_sin = torch.cat([torch.ones(1, 16), torch.zeros(1, 16)], 1)
    quantized_rope_and_cache(qkv, cos_sin, torch.zeros_like(slots), slots, pools[0], pools[1], None, None, EPS)
    pools[2].write(slots, x)
    nonzero = pools[2].values & 0x7F != 0  # −0 is written as +0 where it was made by a sum
    assert torch.equal(pools[1].values[nonzero], pools[2].values[nonzero])
    assert not (pools[1].values[~nonzero] & 0x7F).any()
