"""Every kernel against a float64 reference on fresh random inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from engines.native.config import EngineConfig
from engines.native.kernels import INTERPRETED, fused, linear, prep, sampling
from engines.native.models.config import DecoderConfig, Rope
from engines.native.ops.library_attention import OFTEN
from engines.native.ops.spans import spans_of
from engines.native.ops.torch_ops import TorchOps
from engines.native.ops.triton_ops import TritonOps
from engines.native.sample.noise import gumbel
from evaluation.benchmarks.kernel_cases import Heads, Paged, one_row, paged, sampling_table
from evaluation.benchmarks.random_model import greedy, random_runner
from evaluation.benchmarks.report import Row

METRICS = ("relative error", "wrong draws", "wrong tensors", "wrong rows", "logprob difference")
"""A row with one of these that misses its target is a wrong result, not a slow one."""

EPS = 1e-5
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
HEADS = (Heads(32, 8, 128), Heads(9, 3, 64), Heads(12, 2, 128), Heads(4, 1, 256), Heads(6, 6, 80))
SMALL = DecoderConfig(
    architecture="llama", layers=4, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocab=4096,
    context_length=2048, norm_eps=1e-5, rope=Rope(), tied=True, qkv_bias=False, o_bias=False, mlp_bias=False,
    qk_norm=False, windows=(0, 0, 256, 0),
)  # fmt: skip


def run(device: torch.device) -> Iterator[list[Row]]:
    """The results, part by part."""
    torch.manual_seed(torch.seed() % 2**31)
    for dtype in TOLERANCE:
        yield _attention(device, dtype) + _fused(device, dtype) + _products(device, dtype)
    yield [*_sampling(device), _prepare(device)]
    if device.type == "cuda":
        yield [_whole_prompts(device, dtype) for dtype in (torch.float16, torch.bfloat16)]
        yield _decoder()


def _row(case: str, dtype: torch.dtype, error: float, slack: float = 1.0) -> Row:
    name = str(dtype).removeprefix("torch.")
    return Row(f"{case} {name}", "relative error", error, "", "lower", target=TOLERANCE[dtype] * slack)


def _error(value: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((value.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30))


def _attention(device: torch.device, dtype: torch.dtype) -> list[Row]:
    shapes: dict[str, tuple[list[int], list[int], int]] = {
        "decode": ([1] * 5, [1, 17, 700, 4000, 2048], 0),
        "verify": ([8, 3, 1], [900, 3, 3000], 0),
        "prefill": ([600, 130], [600, 130], 0),
        "mixed": ([1, 400, 1, 77], [1500, 900, 5, 77], 0),
        "window": ([1, 300, 9], [2500, 1000, 40], 200),
    }
    heads: tuple[Heads, ...] = HEADS
    if INTERPRETED:
        shapes = {"mixed": ([1, 9], [20, 12], 0), "window": ([2, 1], [20, 12], 5)}
        heads = (Heads(3, 1, 16),)
    ops, found = TritonOps(), []
    for head in heads:
        for name, (queries, lengths, window) in shapes.items():
            case = paged(queries, lengths, head, 16, dtype, device)
            scale = head.dim**-0.5
            out = ops.attention(case.q, case.k_cache, case.v_cache, case.batch, scale, window)
            again = ops.attention(case.q, case.k_cache, case.v_cache, case.batch, scale, window)
            same = 0.0 if torch.equal(out, again) else math.nan  # splits are merged in a fixed order
            error = _error(out, attention_reference(case, range(len(lengths)), scale, window))
            found.append(_row(f"attention {name} {head.query}/{head.kv}×{head.dim}", dtype, error + same))
    return found


def _products(device: torch.device, dtype: torch.dtype) -> list[Row]:
    """Of few rows; the same row alone and beside others, bit for bit."""
    if dtype == torch.float32 and not INTERPRETED:
        return []  # no tile of the table takes so many bytes, and none is asked to
    shapes, rows = [(40, 96)], [3]
    if not INTERPRETED:
        shapes, rows = [(6144, 4096), (1024, 3072), (960, 576), (1000, 200)], [1, 8, 17, 64, 128, 200]
    worst, gated, alike = 0.0, 0.0, True
    for outputs, inputs in shapes:
        for count in rows:
            x, weight = torch.randn(count, inputs, device=device).to(dtype), torch.randn(outputs, inputs, device=device)
            weight, bias = (weight / inputs**0.5).to(dtype), torch.randn(outputs, device=device).to(dtype)
            wanted = x.double() @ weight.double().t() + bias.double()
            for splits in (False, True):
                found = linear.linear(x, weight, bias, splits=splits)
                found = found.double().sum(0) if found.dim() == 3 else found
                worst = max(worst, _error(found, wanted))
            gate, up = wanted.chunk(2, -1)
            half = linear.gated_linear(x, weight, bias)
            gated = max(gated, _error(half, torch.nn.functional.silu(gate) * up))
            if count <= 32 and not INTERPRETED:
                together, alone = (linear.linear(y, weight, bias, splits=True) for y in (x, x[-1:]))
                alike = alike and torch.equal(together[..., -1, :], alone[..., 0, :])
    return [_row("linear", dtype, worst if alike else math.nan), _row("gated linear", dtype, gated, 2)]


def _whole_prompts(device: torch.device, dtype: torch.dtype) -> Row:
    """Rotated, written and attended to by the library, beside a decode and a chunk that the kernel takes."""
    queries, lengths = [1, 40, 512, 512, 512, 700, 700], [900, 300, 512, 512, 512, 700, 700]
    head = Heads(32, 8, 128)
    case = paged(queries, lengths, head, 16, dtype, device)
    count, start = np.array(queries, np.int32), np.array(lengths, np.int32) - np.array(queries, np.int32)
    qkv = torch.randn(len(case.q), (head.query + 2 * head.kv) * head.dim, device=device).to(dtype)
    cos_sin = torch.randn(900, head.dim, device=device)
    ops, out = TritonOps(), case.q
    for _ in range(OFTEN + 1):  # the last pass goes to the library
        batch = replace(case.batch, spans=spans_of(start, count), shared={})
        case.q = ops.rope_and_cache(qkv, cos_sin, batch, case.k_cache, case.v_cache, None, None, EPS)
        out = ops.attention(case.q, case.k_cache, case.v_cache, batch, head.dim**-0.5, 0)
        taken = "keys and values" in batch.shared
    wanted = attention_reference(case, range(len(lengths)), head.dim**-0.5, 0)
    return _row("attention, whole prompts by the library", dtype, _error(out, wanted) if taken else math.nan)


def attention_reference(case: Paged, rows: range, scale: float, window: int) -> torch.Tensor:
    """Outputs of `rows`, concatenated, float64, each computed alone."""
    alone = (one_row(case, row) for row in rows)
    return torch.cat([TorchOps().attention(c.q, c.k_cache, c.v_cache, c.batch, scale, window) for c in alone])


def _fused(device: torch.device, dtype: torch.dtype) -> list[Row]:
    tokens, hidden, ffn, head = (3, 48, 40, Heads(3, 1, 16)) if INTERPRETED else (33, 4096, 14336, Heads(32, 8, 128))
    reference, found = TorchOps(), []
    x, residual, weight = (torch.randn(tokens, hidden, device=device).to(dtype) for _ in range(3))
    norm = reference.rms_norm(x.double(), weight[0].double(), EPS)
    found.append(_row("rms_norm", dtype, _error(fused.rms_norm(x, weight[0], EPS), norm), 2))
    total = (x.double() + residual.double()).to(dtype)
    normed = fused.add_rms_norm(x, residual, weight[0], EPS)
    wanted = reference.rms_norm(total.double(), weight[0].double(), EPS)
    found.append(_row("add_rms_norm", dtype, _error(normed, wanted) + _error(residual, total), 2))
    gate_up = (torch.randn(tokens, 2 * ffn, device=device) * 3).to(dtype)
    found.append(
        _row("silu_mul", dtype, _error(fused.silu_mul(gate_up), reference.silu_gated(torch.Tensor.double, gate_up)), 2)
    )
    for normed_heads in (False, True):
        case = paged([tokens], [tokens], head, 16, dtype, device)
        qkv = torch.randn(tokens, (head.query + 2 * head.kv) * head.dim, device=device).to(dtype)
        q_norm = torch.randn(head.dim, device=device).to(dtype) if normed_heads else None
        k_norm = torch.randn(head.dim, device=device).to(dtype) if normed_heads else None
        cos_sin = torch.randn(tokens, head.dim, device=device)
        wide_q, wide_k = (None if w is None else w.double() for w in (q_norm, k_norm))
        pools = (case.k_cache.double(), case.v_cache.double())
        q = TritonOps().rope_and_cache(qkv, cos_sin, case.batch, case.k_cache, case.v_cache, q_norm, k_norm, EPS)
        wanted_q = reference.rope_and_cache(
            qkv.double(), cos_sin.double(), case.batch, pools[0], pools[1], wide_q, wide_k, EPS
        )
        error = _error(q, wanted_q) + _error(case.k_cache[1:], pools[0][1:]) + _error(case.v_cache[1:], pools[1][1:])
        found.append(_row("rope, KV write" + (", qk-norm" if normed_heads else ""), dtype, error, 3))
    return found


def _sampling(device: torch.device) -> list[Row]:
    count, vocab = (2, 3000) if INTERPRETED else (64, 128_256)
    rows = torch.arange(count, dtype=torch.int32, device=device)
    positions = torch.randint(0, 10_000, (count,), device=device)
    table = sampling_table(count, vocab, device)
    flat = torch.zeros(count, vocab, device=device)
    tokens, _ = sampling.sample(flat, rows, positions, table, penalties=False, bias=False, filters=False)
    every = torch.arange(vocab, device=device)
    wrong = int((tokens != gumbel(table.seed, positions, every).argmax(-1)).sum())
    found = [Row("sampling noise", "wrong draws", wrong, f"of {count}", "lower", target=0)]
    settings: dict[str, dict[str, float]] = {
        "greedy": {"temperature": 0.0, "presence": 0.5},
        "top-k": {"top_k": 40},
        "top-p": {"top_p": 0.9, "temperature": 0.7},
        "top-k, top-p, min-p, penalties": {
            "top_k": 50, "top_p": 0.8, "min_p": 0.02, "repetition": 1.1, "frequency": 0.2, "temperature": 1.2,
        },
    }  # fmt: skip
    for name, columns in settings.items():
        table = sampling_table(count, vocab, device, **columns)
        logits = torch.randn(count, vocab, device=device) * 3
        tokens, logprobs = sampling.sample(logits, rows, positions, table, penalties=True, bias=True, filters=True)
        wrong = sum(not _drawn(logits[i], table, i, int(positions[i]), int(tokens[i])) for i in range(count))
        own = logits.double().log_softmax(-1).gather(1, tokens.long()[:, None])[:, 0]
        wrong += int(((logprobs.double() - own).abs() > 1e-4).sum())
        found.append(Row(f"sampling {name}", "wrong draws", wrong, f"of {count}", "lower", target=0))
    return found


def _drawn(logits: torch.Tensor, table: sampling.SamplingTable, row: int, position: int, token: int) -> bool:
    """Whether `token` is the noisy argmax over what the filters leave, by sorting; rounding may move the border."""
    scores = logits.double()
    counts = table.output_counts[row].double()
    seen = (counts > 0) | table.in_prompt[row]
    repetition = float(table.repetition[row])
    scores = torch.where(seen, torch.where(scores > 0, scores / repetition, scores * repetition), scores)
    scores = scores - float(table.frequency[row]) * counts - float(table.presence[row]) * (counts > 0).double()
    length = int(table.bias_len[row])
    scores.index_add_(0, table.bias_ids[row, :length].long(), table.bias_values[row, :length].double())
    temperature = float(table.temperature[row])
    if temperature == 0:
        return bool(scores[token] >= scores.max() - 1e-4)
    scores = scores / temperature
    noisy = scores + gumbel(table.seed[row : row + 1], torch.tensor([position], device=scores.device),
                            torch.arange(len(scores), device=scores.device))[0]  # fmt: skip
    strict, loose = (_allowed(scores, table, row, factor) for factor in (1 - 1e-5, 1 + 1e-5))
    return bool(loose[token] & (noisy[token] >= noisy[strict].max() - 1e-4))


def _allowed(scores: torch.Tensor, table: sampling.SamplingTable, row: int, factor: float) -> torch.Tensor:
    top_k, top_p, min_p = int(table.top_k[row]), float(table.top_p[row]), float(table.min_p[row])
    ordered = scores.sort(descending=True).values
    allowed = scores >= ordered[top_k - 1] if top_k else torch.ones_like(scores, dtype=torch.bool)
    if min_p > 0:
        allowed &= scores >= ordered[0] + math.log(min_p)
    if top_p < 1:
        mass = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        ordered = mass.sort(descending=True).values
        last = int((ordered.cumsum(0) < top_p * factor).sum().clamp_max(len(scores) - 1))
        allowed &= mass >= ordered[last]
    return allowed


def _prepare(device: torch.device) -> Row:
    """The batch of a paged case, made again from row tables by the kernel."""
    queries, lengths = ([3, 1], [9, 20]) if INTERPRETED else ([700, 1, 33, 1], [900, 2000, 33, 1])
    want = paged(queries, lengths, Heads(1, 1, 16), 16, torch.float32, device).batch
    n, total = len(queries), sum(queries)
    tokens = torch.randint(0, 50_000, (n, max(lengths)), dtype=torch.int32, device=device)
    order = torch.arange(n, dtype=torch.int32, device=device)
    starts = want.seq_lens - torch.tensor(queries, dtype=torch.int32, device=device)
    found = prep.prepare(
        tokens, want.block_tables, order, starts, want.cu_query, order, total=total, logits=n,
        width=want.block_tables.shape[1], block_size=16, max_query=max(queries),
    )  # fmt: skip
    token_row = torch.repeat_interleave(torch.tensor(queries, device=device))
    pairs = [
        (found.token_ids, tokens[token_row, want.positions].long()),
        (found.positions, want.positions),
        (found.slots, want.slots),
        (found.seq_lens, want.seq_lens),
        (found.block_tables, want.block_tables),
        (found.logits_index, want.logits_index),
    ]
    wrong = sum(b is None or not torch.equal(a, b) for a, b in pairs)
    return Row("prepare", "wrong tensors", wrong, f"of {len(pairs)}", "lower", target=0)


def _decoder() -> list[Row]:
    """The whole decoder on the runner: TritonOps against TorchOps, greedy, the same random weights."""
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, SMALL.vocab, (n,), generator=generator).tolist() for n in (700, 5, 64, 301)]
    found = []
    for dtype, steps in (("float32", 24), ("bfloat16", 1)):
        results = []
        for ops in ("triton", "torch"):
            config = EngineConfig(
        speculation="off",
                format="safetensors", paths={}, device="cuda", dtype=dtype, max_model_len=1024, max_num_seqs=4,
                kv_cache_bytes=1 << 28, max_batched_tokens=2048, ops=ops,
            )  # fmt: skip
            results.append(greedy(random_runner(SMALL, config, seed=11), prompts, steps))
        (tokens, values), (wanted, wanted_values) = results
        if dtype == "float32":
            wrong = sum(a != b for a, b in zip(tokens, wanted, strict=True))
            found.append(Row(f"decoder greedy {steps} tokens float32", "wrong rows", wrong, "of 4", "lower", target=0))
        difference = float((torch.tensor(values) - torch.tensor(wanted_values)).abs().max())
        limit = 1e-3 if dtype == "float32" else 0.1
        found.append(Row(f"decoder {dtype}", "logprob difference", difference, "", "lower", target=limit))
    return found
