"""Paged attention over a block table: decode, chunk, verify and mixed steps in one launch.

Work item = (query block, KV head, split of the keys). The query heads of a KV group are stacked with the query
tokens in the M dimension of the tile, so that a key is read once for the whole group. Long rows are cut into splits
of equal length; partial results are merged, in split order, by whichever program of the group ends last. No grid
depends on device data: query blocks and splits are counted from upper bounds, and programs without work leave.

Sources: FlashAttention-2 (arXiv 2307.08691), flash-decoding (Dao et al., 2023).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engines.native.kernels import INTERPRETED
from engines.native.kernels.ancestors import last_seen, sees, whole_word
from engines.native.kernels.attention_plan import Launch, Workspace
from engines.native.kernels.dependent import begin, dependent, wait
from engines.native.kernels.quantized_keys import form, quantized_keys
from engines.native.quantized_kv import Pool, QuantizedPool

LOG2_E = 1.4426950408889634


@triton.jit
def _find_row(cu_query, n_rows, block, BLOCK_Q: tl.constexpr):
    """Row of query block `block`: row i owns the blocks from cu_query[i] // BLOCK_Q + i on."""
    low = 0
    high = n_rows
    while high - low > 1:
        middle = (low + high) // 2
        ahead = tl.load(cu_query + middle) // BLOCK_Q + middle > block
        high = tl.where(ahead, middle, high)
        low = tl.where(ahead, low, middle)
    return low


@triton.jit
def _fold(top, total, acc, s, v, scale, MASKED: tl.constexpr):
    """One step of the online softmax, in base 2: raw scores s [M, N] and values v [N, D] into (top, total, acc)."""
    top_new = tl.maximum(top, tl.max(s, 1) * scale)
    shift = top_new
    if MASKED:
        shift = tl.where(top_new == float("-inf"), 0.0, top_new)  # a row that has seen no key yet
    p = tl.exp2(s * scale - shift[:, None])
    keep = tl.exp2(top - shift)
    acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
    return top_new, total * keep + tl.sum(p, 1), acc


@triton.jit
def _keys(
    q, q_pos, word, context, top, total, acc, k_cache, v_cache, table, block_stride, first, end, scale,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr, MASKED: tl.constexpr, WIDE: tl.constexpr, INTERP: tl.constexpr, INNER: tl.constexpr,
    TREE: tl.constexpr,
):  # fmt: skip
    """Attend to the keys [first, end) of one row. Unmasked: whole tiles that every query sees."""
    d = tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    page = tl.load(table + (first + n) // PAGE, mask=first + n < end, other=0)
    for start in range(first, end, BLOCK_N):
        k_pos = start + n
        inside = k_pos < end
        if WIDE:
            page = page.to(tl.int64)
        place = page * block_stride + k_pos % PAGE * HEAD_DIM
        offset = place[:, None] + d[None, :]
        # Pages are read one tile ahead: a chain table → key in one iteration would halve the depth of the pipeline.
        page = tl.load(table + (k_pos + BLOCK_N) // PAGE, mask=k_pos + BLOCK_N < end, other=0)
        # Masked values must read as 0: a page holds garbage past the row's end, and 0 × NaN is NaN.
        if MASKED:
            k = tl.load(k_cache + offset, mask=inside[:, None] & (d[None, :] < HEAD_DIM), other=0.0)
            v = tl.load(v_cache + offset, mask=inside[:, None] & (d[None, :] < HEAD_DIM), other=0.0)
        elif BLOCK_D != HEAD_DIM:
            k = tl.load(k_cache + offset, mask=d[None, :] < HEAD_DIM, other=0.0)
            v = tl.load(v_cache + offset, mask=d[None, :] < HEAD_DIM, other=0.0)
        else:
            k = tl.load(k_cache + offset)
            v = tl.load(v_cache + offset)
        if INTERP:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if INNER > 0:  # tanh, by way of the logistic function; `scale` is the cap's
            s = 2.0 * tl.sigmoid(s * INNER) - 1.0
        if MASKED:
            seen = sees(k_pos, q_pos, word, context, WINDOW, TREE) & inside[None, :]
            s = tl.where(seen, s, float("-inf"))
        top, total, acc = _fold(top, total, acc, s, v, scale, MASKED)
    return top, total, acc


@triton.jit
def _split(partial, stats, at, here, used, stored, d, HEAD_DIM: tl.constexpr):
    """One split's partial results of the rows `at`: nothing unless `here`."""
    top = tl.load(stats + at * 2, mask=used & here, other=float("-inf"), cache_modifier=".cg")
    total = tl.load(stats + at * 2 + 1, mask=used & here, other=0.0, cache_modifier=".cg")
    place = at[:, None] * HEAD_DIM + d[None, :]
    return top, total, tl.load(partial + place, mask=stored & here, other=0.0, cache_modifier=".cg")


@triton.jit
def _join(top, total, acc, other_top, other_total, other_acc):
    top_new = tl.maximum(top, other_top)
    shift = tl.where(top_new == float("-inf"), 0.0, top_new)
    keep, weight = tl.exp2(top - shift), tl.exp2(other_top - shift)
    return top_new, total * keep + other_total * weight, acc * keep[:, None] + other_acc * weight[:, None]


@triton.jit
def _merge(
    partial, stats, out, base, split_stride, n_splits, q_len, q_first, place,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_Q: tl.constexpr,
    MERGE_M: tl.constexpr, TOGETHER: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """Combine the partial results of a work item's splits in split order, TOGETHER of them per step (a step costs one
    wait for memory, whatever it reads), and store them. `place`: where the item's first query is in `out`. APART:
    for rows of many values, which fill all threads, so that a sum over splits would go from thread to thread."""
    lane = tl.arange(0, MERGE_M)
    d = tl.arange(0, BLOCK_D)
    used = (lane < BLOCK_Q * GROUP) & (q_first + lane // GROUP < q_len)
    stored = used[:, None] & (d[None, :] < HEAD_DIM)
    top = tl.full([MERGE_M], float("-inf"), tl.float32)
    total = tl.zeros([MERGE_M], tl.float32)
    acc = tl.zeros([MERGE_M, BLOCK_D], tl.float32)
    if APART:
        for first in range(0, n_splits, TOGETHER):  # all loads of a step before any is waited for
            at = base + first * split_stride + lane
            top_0, total_0, acc_0 = _split(partial, stats, at, first < n_splits, used, stored, d, HEAD_DIM)
            if TOGETHER > 1:
                here = first + 1 < n_splits
                top_1, total_1, acc_1 = _split(partial, stats, at + split_stride, here, used, stored, d, HEAD_DIM)
            if TOGETHER > 2:
                here = first + 2 < n_splits
                top_2, total_2, acc_2 = _split(partial, stats, at + 2 * split_stride, here, used, stored, d, HEAD_DIM)
                here = first + 3 < n_splits
                top_3, total_3, acc_3 = _split(partial, stats, at + 3 * split_stride, here, used, stored, d, HEAD_DIM)
            top, total, acc = _join(top, total, acc, top_0, total_0, acc_0)
            if TOGETHER > 1:
                top, total, acc = _join(top, total, acc, top_1, total_1, acc_1)
            if TOGETHER > 2:
                top, total, acc = _join(top, total, acc, top_2, total_2, acc_2)
                top, total, acc = _join(top, total, acc, top_3, total_3, acc_3)
    else:
        for first in range(0, n_splits, TOGETHER):
            split = first + tl.arange(0, TOGETHER)
            at = base + (split * split_stride)[:, None] + lane[None, :]
            mask = (split < n_splits)[:, None] & used[None, :]
            tops = tl.load(stats + at * 2, mask=mask, other=float("-inf"), cache_modifier=".cg")
            totals = tl.load(stats + at * 2 + 1, mask=mask, other=0.0, cache_modifier=".cg")
            accs = tl.load(
                partial + at[:, :, None] * HEAD_DIM + d[None, None, :],
                mask=(split < n_splits)[:, None, None] & stored[None, :, :], other=0.0, cache_modifier=".cg",
            )  # fmt: skip
            top_new = tl.maximum(top, tl.max(tops, 0))
            shift = tl.where(top_new == float("-inf"), 0.0, top_new)
            keep = tl.exp2(top - shift)
            weight = tl.exp2(tops - shift[None, :])
            total = total * keep + tl.sum(totals * weight, 0)
            acc = acc * keep[:, None] + tl.sum(accs * weight[:, :, None], 0)
            top = top_new
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    target = (lane // GROUP * tl.num_programs(1) * GROUP + lane % GROUP)[:, None] * HEAD_DIM + d[None, :]
    tl.store(out + place + target, acc.to(out.dtype.element_ty), mask=stored)


@triton.jit(
    # Lengths and offsets that change from step to step must not compile another kernel in the middle of serving.
    do_not_specialize=["n_rows", "table_stride", "split_tokens", "max_splits"],
    do_not_specialize_on_alignment=["cu_query", "seq_lens", "tables", "ancestors"],
)
def paged_attention_kernel(
    q, k_cache, v_cache, k_scales, v_scales, out, cu_query, seq_lens, tables, ancestors,
    partial, stats, arrived, n_rows, table_stride, block_stride, head_stride, scale, split_tokens, max_splits,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MERGE_M: tl.constexpr,
    WINDOW: tl.constexpr, ONE_BLOCK: tl.constexpr, WIDE: tl.constexpr, INTERP: tl.constexpr,
    INNER: tl.constexpr, DEPENDENT: tl.constexpr, KV: tl.constexpr, TREE: tl.constexpr, TOGETHER: tl.constexpr,
    APART: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """Grid: (query blocks, KV heads, splits). q, out [t, hq, d]; `scale` includes log2(e). With INNER > 0 a score s is
    tanh(s × INNER / 2) before it is scaled. KV: "" for pools of the dtype of q, else of 8 bits as
    `quantized_keys.form` names them, where a pool's places count pairs of values.

    Lengths, tables and words are there before the first layer of a pass: they are read before the kernel in front has
    ended.

    MERGE_M: rows of a block that can be in use; WIDE: places in a pool need 64 bits. TREE: `ancestors` has a word for
    each query (`kernels.ancestors`), else it is None. TOGETHER, APART: how
    a merge reads (`_merge`). TWICE: first the tiles that need no mask, then the others; else all are masked.
    """
    begin(DEPENDENT)
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the last blocks of a prompt see the most keys: start them first
    head, n_heads, split = tl.program_id(1), tl.num_programs(1), tl.program_id(2)
    if ONE_BLOCK:
        row = block
        q_first = 0
        q_start = tl.load(cu_query + row)
    else:
        row = _find_row(cu_query, n_rows, block, BLOCK_Q)
        q_start = tl.load(cu_query + row)
        q_first = (block - (q_start // BLOCK_Q + row)) * BLOCK_Q
    q_len = tl.load(cu_query + row + 1) - q_start
    if q_first >= q_len:
        wait(DEPENDENT)
        return
    seq_len = tl.load(seq_lens + row)
    context = seq_len - q_len
    word = 0
    first = 0
    if TREE:
        query_of = q_first + tl.arange(0, BLOCK_M) // GROUP
        asked = (tl.arange(0, BLOCK_M) < BLOCK_Q * GROUP) & (query_of < q_len)
        word = whole_word(tl.load(ancestors + q_start + query_of, mask=asked, other=1), query_of)
        if WINDOW > 0:
            first = tl.maximum(context - WINDOW + 1, 0) // BLOCK_N * BLOCK_N  # depths are not known to the block
        last = tl.minimum(context + last_seen(word, query_of, asked) + 1, seq_len)
    else:
        if WINDOW > 0:
            first = tl.maximum(context + q_first - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        last = tl.minimum(context + q_first + BLOCK_Q, seq_len)  # end of the keys that this block's queries see
    n_splits = tl.maximum(tl.cdiv(last - first, split_tokens), 1)
    if split >= n_splits:
        wait(DEPENDENT)
        return
    first += split * split_tokens
    end = tl.minimum(first + split_tokens, last)

    lane = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    q_index = q_first + lane // GROUP
    used = (lane < BLOCK_Q * GROUP) & (q_index < q_len)
    stored = used[:, None] & (d[None, :] < HEAD_DIM)
    first_place = ((q_start + q_first).to(tl.int64) * n_heads + head) * GROUP * HEAD_DIM  # of the block, in q and out
    inner = (lane // GROUP * n_heads * GROUP + lane % GROUP)[:, None] * HEAD_DIM + d[None, :]
    table = tables + row.to(tl.int64) * table_stride
    k_cache += head.to(tl.int64) * head_stride
    v_cache += head.to(tl.int64) * head_stride
    wait(DEPENDENT)
    query = tl.load(q + first_place + inner, mask=stored, other=0.0)
    if INTERP:
        query = query.to(tl.float32)
    q_pos = context + q_index
    whole = first  # end of the tiles that need no mask; a decode's single masked tile is not worth a second loop
    if TWICE:
        seen_by_all = context + 1 if TREE else context + q_first + 1
        whole += tl.maximum(tl.minimum(end, seen_by_all) - first, 0) // BLOCK_N * BLOCK_N
    if KV == "":
        top = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        if TWICE:
            top, total, acc = _keys(
                query, q_pos, word, context, top, total, acc, k_cache, v_cache, table, block_stride, first, whole,
                scale, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, False, WIDE, INTERP, INNER, TREE,
            )  # fmt: skip
        top, total, acc = _keys(
            query, q_pos, word, context, top, total, acc, k_cache, v_cache, table, block_stride, whole, end,
            scale, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, True, WIDE, INTERP, INNER, TREE,
        )  # fmt: skip
    else:
        top, total, acc = quantized_keys(
            query, q_pos, word, context, k_cache, v_cache, k_scales, v_scales, table, block_stride, head, head_stride,
            first, whole, end, scale,
            BLOCK_M, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, TWICE, WIDE, INTERP, INNER, KV, TREE,
        )  # fmt: skip

    if n_splits == 1:
        acc = acc / tl.where(total > 0, total, 1.0)[:, None]  # a padded row (seq_len 0) sees no key: zeros
        tl.store(out + first_place + inner, acc.to(out.dtype.element_ty), mask=stored)
        return
    item = (block * n_heads + head).to(tl.int64)
    split_stride = BLOCK_Q * GROUP
    base = item * max_splits * split_stride
    here = base + split * split_stride + lane
    tl.store(partial + here[:, None] * HEAD_DIM + d[None, :], acc, mask=stored)
    tl.store(stats + here * 2, top, mask=used)
    tl.store(stats + here * 2 + 1, total, mask=used)
    tl.debug_barrier()  # the whole program's stores before its arrival
    if tl.atomic_add(arrived + item, 1, sem="acq_rel") == n_splits - 1:
        tl.store(arrived + item, 0)  # every split has arrived: ready for the next launch
        _merge(
            partial, stats, out, base, split_stride, n_splits, q_len, q_first, first_place,
            GROUP, HEAD_DIM, BLOCK_D, BLOCK_Q, MERGE_M, TOGETHER, APART,
        )  # fmt: skip


def paged_attention(
    q: torch.Tensor, k_cache: Pool, v_cache: Pool, out: torch.Tensor, cu_query: torch.Tensor, seq_lens: torch.Tensor,
    block_tables: torch.Tensor, *, scale: float, window: int, launch: Launch, workspace: Workspace,
    softcap: float = 0.0, ancestors: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Causal attention of ragged queries q [t, hq, d] over pools [B, hk, s, d] into out [t, hq, d]; `launch` must have
    been planned for pools of their kind.

    q and out are contiguous; the pools have equal strides, and contiguous pages [s, d].
    cu_query int32 [n + 1], seq_lens int32 [n], block_tables int32 [n, width] with unit stride in a row. Tokens past
    cu_query[n] are left as they are. softcap > 0: scaled scores become softcap × tanh(score / softcap). ancestors:
    int32 [t], as in `Batch`, of rows of at most 32 queries.
    """
    kv_heads, page, head_dim = k_cache.shape[1:]
    group = q.shape[1] // kv_heads
    if launch.splits > 1:
        items = launch.query_blocks * kv_heads
        workspace.reserve(items, items * launch.splits * launch.block_q * group, head_dim)
    follows, kind = dependent(q.device), ""
    scales: list[torch.Tensor | None] = [None, None]
    pools = [pool.values.view(torch.int16) if isinstance(pool, QuantizedPool) else pool for pool in (k_cache, v_cache)]
    if isinstance(k_cache, QuantizedPool) and isinstance(v_cache, QuantizedPool):
        kind, scales = form(k_cache.kind, q.device), [k_cache.scales, v_cache.scales]
    paged_attention_kernel[(launch.query_blocks, kv_heads, launch.splits)](
        q, *pools, *scales, out, cu_query, seq_lens, block_tables, ancestors,
        workspace.partial, workspace.stats, workspace.arrived,
        seq_lens.numel(), block_tables.stride(0), pools[0].stride(0), pools[0].stride(1),
        (softcap or scale) * LOG2_E, launch.split_tokens, launch.splits,
        GROUP=group, HEAD_DIM=head_dim, BLOCK_D=launch.block_d, PAGE=page,
        BLOCK_Q=launch.block_q, BLOCK_M=launch.tile.block_m, BLOCK_N=launch.tile.block_n, MERGE_M=launch.merge_m,
        WINDOW=window, ONE_BLOCK=launch.one_block, WIDE=pools[0].numel() >= 2**31, INTERP=INTERPRETED,
        INNER=2 * scale / softcap if softcap else 0.0, DEPENDENT=follows, KV=kind,
        TREE=ancestors is not None, TOGETHER=launch.together, APART=launch.apart,
        TWICE=launch.twice, num_warps=launch.tile.warps, num_stages=launch.tile.stages,
        launch_pdl=follows and launch.early,
    )  # fmt: skip
