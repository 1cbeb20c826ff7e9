"""The paged attention kernel against a float64 reference, in the interpreter."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels import attention_plan
from engines.native.kernels.attention import paged_attention
from engines.native.kernels.attention_plan import Device, Launch, Workspace, plan
from tests.engines.kernels import reference

pytestmark = pytest.mark.kernels

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def run(
    case: reference.Paged, *, window: int = 0, launch: Launch | None = None, workspace: Workspace | None = None,
    softcap: float = 0.0,
):  # fmt: skip
    """(output, float64 reference). The output is poisoned first, so that an unwritten element is a NaN."""
    scale = case.q.shape[2] ** -0.5
    launch = launch or plan_of(case, window)
    out = torch.full_like(case.q, float("nan"))
    paged_attention(
        case.q, case.k_cache, case.v_cache, out, case.cu_query, case.seq_lens, case.block_tables,
        scale=scale, window=window, launch=launch, workspace=workspace or Workspace(case.q.device), softcap=softcap,
    )  # fmt: skip
    return out, reference.attention(case, scale, window, softcap)


def plan_of(case: reference.Paged, window: int = 0) -> Launch:
    return plan(
        tokens=case.q.shape[0], rows=case.seq_lens.numel(), group=case.q.shape[1] // case.k_cache.shape[1],
        kv_heads=case.k_cache.shape[1], head_dim=case.q.shape[2], max_query=case.max_query, max_seq=case.max_seq,
        window=window, dtype=case.q.dtype, device=Device.of(case.q.device),
    )  # fmt: skip


def split_into(launch: Launch, split_tokens: int, max_seq: int) -> Launch:
    """The same launch with short splits, as the plan makes them only for sequences too long for the interpreter."""
    return replace(launch, split_tokens=split_tokens, splits=-(-max_seq // split_tokens))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("query_lens", "seq_lens"),
    [([1, 1], [23, 7]), ([13], [13]), ([5, 9], [21, 9]), ([1, 6, 1], [17, 6, 1])],
    ids=["decode", "prefill", "chunks", "mixed"],
)
def test_equals_the_reference(dtype, query_lens, seq_lens):
    case = reference.paged_case(query_lens, seq_lens, heads=2, kv_heads=1, head_dim=16, page=4, dtype=dtype)
    out, wanted = run(case)
    assert reference.relative_error(out, wanted) < TOLERANCE[dtype]


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_ragged_shapes(data):
    rows = data.draw(st.integers(1, 3))
    seq_lens = data.draw(st.lists(st.integers(1, 24), min_size=rows, max_size=rows))
    query_lens = [data.draw(st.integers(1, n)) for n in seq_lens]
    group, kv_heads = data.draw(st.sampled_from([(1, 2), (3, 1), (2, 2)]))
    case = reference.paged_case(
        query_lens, seq_lens, heads=group * kv_heads, kv_heads=kv_heads,
        head_dim=data.draw(st.sampled_from([16, 24, 32])), page=data.draw(st.sampled_from([1, 4, 6, 16])),
        seed=data.draw(st.integers(0, 99)),
    )  # fmt: skip
    out, wanted = run(case, window=data.draw(st.sampled_from([0, 0, 1, 5, 100])))
    assert reference.relative_error(out, wanted) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize("query_lens", [[1, 1], [3, 1], [40, 2]], ids=["decode", "verify", "prefill"])
def test_splits_are_merged(query_lens, window):
    case = reference.paged_case(query_lens, [130, 33], heads=2, kv_heads=1, head_dim=16, page=16)
    launch = split_into(plan_of(case, window), 32, 160)
    workspace = Workspace(case.q.device)
    out, wanted = run(case, window=window, launch=launch, workspace=workspace)
    assert reference.relative_error(out, wanted) < TOLERANCE[torch.float32]
    assert not workspace.arrived.any(), "counters must be zero for the next launch"
    again, _ = run(case, window=window, launch=launch, workspace=workspace)
    assert torch.equal(out, again)


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("query_lens", [[1, 1], [13, 2]], ids=["decode", "prefill"])
def test_capped_scores(query_lens, window):
    case = reference.paged_case(query_lens, [23, 7], heads=2, kv_heads=1, head_dim=16, page=4)
    out, wanted = run(case, window=window, softcap=0.8)
    assert reference.relative_error(out, wanted) < TOLERANCE[torch.float32]
    assert reference.relative_error(run(case, window=window)[0], wanted) > 0.01, "the cap must bite"


@pytest.mark.parametrize("head_dim", [80, 96, 256])
def test_other_head_sizes(head_dim):
    case = reference.paged_case([1, 6], [9, 6], heads=2, kv_heads=1, head_dim=head_dim, page=4)
    out, wanted = run(case)
    assert reference.relative_error(out, wanted) < TOLERANCE[torch.float32]


def test_padded_rows_give_zeros_and_read_nothing():
    """A padded row has seq_len 0 and one query; its table points at the null block, which holds NaN here."""
    case = reference.paged_case([1, 1, 1], [9, 0, 0], heads=3, kv_heads=1, head_dim=16, page=4)
    out, wanted = run(case)
    assert reference.relative_error(out, wanted) < TOLERANCE[torch.float32]
    assert not out[1:].any()


def test_tokens_past_the_last_row_are_left_alone():
    case = reference.paged_case([5, 20], [5, 20], heads=2, kv_heads=1, head_dim=16, page=4)
    case.q = torch.cat([case.q, torch.randn(16, 2, 16)])
    out, _ = run(case)
    assert torch.isfinite(out[:25]).all()
    assert out[25:].isnan().all()


def test_a_plan_covers_every_query_block_and_key():
    """Brute force over ragged steps: each row's blocks fit the grid, each key has a split."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        rows = int(torch.randint(1, 40, (1,), generator=generator))
        query_lens = torch.randint(0, 200, (rows,), generator=generator).tolist()
        max_seq = max(query_lens) + int(torch.randint(1, 20_000, (1,), generator=generator))
        launch = plan(
            tokens=sum(query_lens), rows=rows, group=3, kv_heads=3, head_dim=64, max_query=max(query_lens),
            max_seq=max_seq, window=0, dtype=torch.bfloat16,
            device=Device(132, (9, 0)),
        )  # fmt: skip
        start = 0
        for row, n in enumerate(query_lens):
            first = row if launch.one_block else start // launch.block_q + row
            assert first + -(-n // launch.block_q) <= launch.query_blocks
            start += n
        assert launch.splits * launch.split_tokens >= max_seq
        assert launch.split_tokens % launch.tile.block_n == 0


def test_programs_with_many_keys_are_placed_when_the_kernel_in_front_has_ended():
    def early(rows: int, keys: int) -> bool:
        return plan(
            tokens=rows, rows=rows, group=4, kv_heads=8, head_dim=128, max_query=1, max_seq=keys, window=0,
            dtype=torch.bfloat16, device=Device(132, (9, 0)),
        ).early  # fmt: skip

    assert [early(1, 512), early(1, 8192), early(256, 384), early(32, 8448)] == [True, True, True, False]


def test_a_head_size_over_the_largest_is_refused_with_the_limit():
    with pytest.raises(ValueError, match="head size 288 is over 256"):
        attention_plan.choose_tile(288, "decode", torch.bfloat16, Device(132, (9, 0)))
