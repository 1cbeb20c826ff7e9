"""Plain torch references of the kernels, in float64 unless said otherwise, and the inputs that tests share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engines.native.kernels.packed import Packed, pack, part_of


@dataclass
class Paged:
    """Ragged queries over a paged pool. Pages are dealt out of order; every place that no row owns holds NaN."""

    q: torch.Tensor  # [t, hq, d]
    k_cache: torch.Tensor  # [B, hk, s, d]
    v_cache: torch.Tensor
    cu_query: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    max_query: int
    max_seq: int


def paged_case(
    query_lens: list[int],
    seq_lens: list[int],
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Paged:
    generator = torch.Generator().manual_seed(seed)
    need = [-(-n // page) for n in seq_lens]
    order = (torch.randperm(sum(need), generator=generator) + 1).tolist()
    k_cache = torch.full((sum(need) + 1, kv_heads, page, head_dim), math.nan, dtype=dtype)
    v_cache = k_cache.clone()
    tables = torch.zeros(len(seq_lens), max([*need, 1]) + 1, dtype=torch.int32)
    for row, n in enumerate(seq_lens):
        for index in range(need[row]):
            block = order.pop()
            tables[row, index] = block
            used = min(page, n - index * page)
            for cache in (k_cache, v_cache):
                cache[block, :, :used] = torch.randn(kv_heads, used, head_dim, generator=generator).to(dtype)
    cu_query = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    q = torch.randn(sum(query_lens), heads, head_dim, generator=generator).to(dtype)
    on_device = [
        x.to(device) for x in (q, k_cache, v_cache, cu_query, torch.tensor(seq_lens, dtype=torch.int32), tables)
    ]
    return Paged(*on_device, max_query=max(query_lens), max_seq=max(seq_lens))


def attention(
    case: Paged, scale: float, window: int, softcap: float = 0.0, words: torch.Tensor | None = None
) -> torch.Tensor:
    """[t, hq, d] float64; zeros for the tokens of a row whose seq_len is 0. words: int32 [t], `Batch.ancestors`."""
    heads, head_dim = case.q.shape[1:]
    kv_heads, page = case.k_cache.shape[1:3]
    out = torch.zeros(case.q.shape, dtype=torch.float64, device=case.q.device)
    for row, n in enumerate(case.seq_lens.tolist()):
        a, b = case.cu_query[row : row + 2].tolist()
        if n == 0 or a == b:
            continue
        blocks = case.block_tables[row, : -(-n // page)].long()
        k, v = (
            c[blocks]
            .transpose(0, 1)
            .reshape(kv_heads, -1, head_dim)[:, :n]
            .double()
            .repeat_interleave(heads // kv_heads, 0)
            for c in (case.k_cache, case.v_cache)
        )
        scores = torch.einsum("qhd,hkd->hqk", case.q[a:b].double(), k) * scale
        if softcap:
            scores = softcap * (scores / softcap).tanh()
        back = torch.arange(n - (b - a), n, device=k.device)[:, None] - torch.arange(n, device=k.device)[None, :]
        hidden = (back < 0) | (back >= window) if window else back < 0
        if words is not None:
            for query, word in enumerate(words[a:b].tolist()):
                if word:
                    hidden[query] = _hidden(word, n - (b - a), n, window)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        out[a:b] = torch.einsum("hqk,hkd->qhd", weights, v)
    return out


def _hidden(word: int, context: int, length: int, window: int) -> torch.Tensor:
    """bool [length], what a query does not see: all but the newest `window` of the tokens along its path."""
    path = [*range(context), *(context + bit for bit in range(length - context) if word >> bit & 1)]
    hidden = torch.ones(length, dtype=torch.bool)
    hidden[path[-window:] if window else path] = False
    return hidden


def packed(
    form: str, outputs: int, inputs: int, group: int, *, zeros: bool = False, height: int = 1, device: str = "cpu"
) -> tuple[Packed, torch.Tensor]:
    """A random weight as kernels read it, and the matrix [outputs, inputs] that it stands for, float32."""
    height = height if group and form != "int4" else 1
    if form == "int4":
        values = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, device=device)
        matrix = values.float() - 8
    elif form == "int8":
        values = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8, device=device)
        matrix = values.float()
    else:
        values = torch.randn(outputs, inputs, device=device).mul_(60).clamp_(-448, 448).to(torch.float8_e4m3fn)
        matrix = values.float()
    groups = -(-inputs // group) if group else 1
    scales = torch.rand(groups, -(-outputs // height), device=device).add_(0.5)
    at = torch.arange(inputs, device=device) // (group or inputs)
    low = torch.randint(0, 17, (groups, outputs), dtype=torch.uint8, device=device) if zeros else None
    if low is not None:
        matrix -= (low.float() - 8)[at].t()
    matrix *= scales[at].t()[torch.arange(outputs, device=device) // height]
    part = part_of(form, inputs, group)
    return Packed(form, pack(values, form, part), scales, low, inputs, group, height, part), matrix


def relative_error(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """‖value − wanted‖ / ‖wanted‖; NaN stays NaN and fails every comparison."""
    difference = (value.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30)
    return float(difference)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.double().chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


RopeCase = tuple[
    torch.Tensor,  # qkv
    torch.Tensor,  # cos_sin
    torch.Tensor,  # positions
    torch.Tensor,  # slots
    torch.Tensor,  # k_cache
    torch.Tensor,  # v_cache
    torch.Tensor | None,  # q_norm
    torch.Tensor | None,  # k_norm
]


def rope_case(
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page: int,
    norms: tuple[bool, bool],
    dtype: torch.dtype,
    device: str = "cpu",
) -> RopeCase:
    """The arguments of fused.rope_and_cache but eps. The pools hold NaN; slots and positions are scattered."""
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim, device=device).to(dtype)
    positions = torch.randint(0, 64, (tokens,), device=device)
    angles = torch.arange(64, device=device)[:, None] * 10_000.0 ** -(
        torch.arange(head_dim // 2, device=device) * 2 / head_dim
    )
    cos_sin = torch.cat([angles.cos(), angles.sin()], -1)
    blocks = -(-tokens // page) + 2
    slots = torch.randperm(blocks * page, device=device)[:tokens]
    k_cache = torch.full((blocks, kv_heads, page, head_dim), math.nan, dtype=dtype, device=device)
    weights = [torch.randn(head_dim, device=device).to(dtype) if wanted else None for wanted in norms]
    return qkv, cos_sin, positions, slots, k_cache, k_cache.clone(), weights[0], weights[1]


def rope_and_cache(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(q [t, hq, d], k_cache, v_cache), float64; the given pools stay as they are."""
    kv_heads, page, head_dim = k_cache.shape[1:]
    heads = qkv.double().view(qkv.shape[0], -1, head_dim)
    q, k, v = heads.split([heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], 1)
    cos, sin = cos_sin.double()[positions][:, None].chunk(2, -1)

    def rotate(x: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
        if norm is not None:
            x = rms_norm(x, norm, eps)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    k_cache, v_cache = k_cache.double(), v_cache.double()
    k_cache[slots // page, :, slots % page] = rotate(k, k_norm)
    v_cache[slots // page, :, slots % page] = v
    return rotate(q, q_norm), k_cache, v_cache


def sampling_table(rows: int, size: int, *, bias: list[dict[int, float]] | None = None, **columns: list[float]):
    """A SamplingTable with random counts; columns not given are neutral, seeds random."""
    from engines.native.kernels.sampling import SamplingTable

    neutral = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0, "presence": 0.0, "frequency": 0.0}
    floats = {name: torch.tensor(columns.get(name, [value] * rows)) for name, value in neutral.items()}
    bias = bias or [{} for _ in range(rows)]
    width = max(1, *(len(b) for b in bias)) if len(bias) > 1 else max(1, len(bias[0]))
    ids, values = torch.zeros(rows, width, dtype=torch.int32), torch.zeros(rows, width)
    for row, entries in enumerate(bias):
        for i, (token, value) in enumerate(entries.items()):
            ids[row, i], values[row, i] = token, value
    return SamplingTable(
        **floats,
        top_k=torch.tensor(columns.get("top_k", [0] * rows), dtype=torch.int32),
        seed=torch.randint(-(2**62), 2**62, (rows,)),
        output_counts=(torch.rand(rows, size) < 0.2).int() * torch.randint(1, 4, (rows, size), dtype=torch.int32),
        in_prompt=torch.rand(rows, size) < 0.2,
        bias_ids=ids,
        bias_values=values,
        bias_len=torch.tensor([len(b) for b in bias], dtype=torch.int32),
        barred_ids=torch.zeros(rows, 2, dtype=torch.int32),
        barred_len=torch.zeros(rows, dtype=torch.int32),
        first_stop=torch.zeros(rows, dtype=torch.int64),
    )


def scores_of(logits: torch.Tensor, table, row: int, position: int) -> torch.Tensor:
    """Biased, penalised, tempered scores [v] of one row, float64."""
    scores = logits.double()
    counts = table.output_counts[row].double()
    seen = (counts > 0) | table.in_prompt[row]
    repetition = float(table.repetition[row])
    scores = torch.where(seen, torch.where(scores > 0, scores / repetition, scores * repetition), scores)
    scores = scores - float(table.frequency[row]) * counts - float(table.presence[row]) * (counts > 0).double()
    for i in range(int(table.bias_len[row])):
        scores[int(table.bias_ids[row, i])] += float(table.bias_values[row, i])
    if position < int(table.first_stop[row]):
        scores[table.barred_ids[row, : int(table.barred_len[row])].long()] = -math.inf
    temperature = float(table.temperature[row])
    return scores / temperature if temperature > 0 else scores


def allowed_of(scores: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Tokens that may be drawn, bool [v], by sorting."""
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if 0 < top_k < scores.numel():
        allowed &= scores >= scores.sort(descending=True).values[top_k - 1]
    if min_p > 0:
        allowed &= scores >= scores.max() + math.log(min_p)
    if top_p < 1:
        probabilities = scores.masked_fill(~allowed, -math.inf).softmax(-1)
        ordered = probabilities.sort(descending=True).values
        last = int((ordered.cumsum(0) < top_p).sum().clamp_max(scores.numel() - 1))
        allowed &= probabilities >= ordered[last]
    return allowed


def assert_drawn(logits: torch.Tensor, table, row: int, position: int, token: int, slack: float = 1e-4) -> None:
    """`token` is the noisy argmax over the allowed tokens, up to `slack` in score (rounding at the borders)."""
    from engines.native.sample.noise import gumbel

    scores = scores_of(logits, table, row, position)
    if float(table.temperature[row]) == 0:
        assert scores[token] >= scores.max() - slack
        return
    filters = int(table.top_k[row]), float(table.top_p[row]), float(table.min_p[row])
    noisy = scores + gumbel(table.seed[row : row + 1], torch.tensor([position]), torch.arange(scores.numel()))[0]
    # A border that rounding may move: what is allowed a little more strictly, and a little more loosely.
    strict, loose = (allowed_of(scores, filters[0], filters[1] * f, filters[2]) for f in (1 - 1e-5, 1 + 1e-5))
    assert loose[token], f"token {token} is filtered out"
    assert noisy[token] >= noisy[strict].max() - slack
