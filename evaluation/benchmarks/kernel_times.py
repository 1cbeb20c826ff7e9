"""Times of the kernels beside the device's limits and the figures of other engines (vLLM 0.26.0 on one H200)."""

from __future__ import annotations

import torch

from engines.native.kernels import fused, prep, sampling
from engines.native.ops.triton_ops import TritonOps
from evaluation.benchmarks.gpu_timing import microseconds
from evaluation.benchmarks.kernel_cases import Heads, Paged, paged, sampling_table
from evaluation.benchmarks.kernel_checks import attention_reference
from evaluation.benchmarks.report import Row

LLAMA = Heads(32, 8, 128)
PAGE = 16
EPS = 1e-5
BF16 = torch.bfloat16
VOCAB = 128_256

FA3_DECODE = {
    (1, 1024): 390, (16, 1024): 2658, (64, 1024): 3486, (256, 1024): 3858,
    (1, 8192): 1931, (16, 8192): 4060, (64, 8192): 4315, (256, 8192): 4397,
}  # fmt: skip
FLASHINFER_DECODE = {
    (1, 1024): 476, (16, 1024): 2412, (64, 1024): 3651, (256, 1024): 4079,
    (1, 8192): 1781, (16, 8192): 4037, (64, 8192): 4334, (256, 8192): 4425,
}  # fmt: skip
"""(batch, context) → GB/s of KV read, page 16, 32/8 heads of 128, bf16."""
FA3_PREFILL = {(16, 1024): 366, (1, 8192): 596}
PREFILL_TARGET = {(16, 1024): 330, (1, 8192): 480}
"""(batch, context) → TFLOP/s, causal, paged."""


def run(bandwidth: float, rate: float) -> list[Row]:
    """bandwidth: bytes/s, rate: bf16 FLOP/s, both measured on this device."""
    device = torch.device("cuda")
    return _decode(device, bandwidth) + _prefill(device, rate) + _small(device, bandwidth) + _draws(device, bandwidth)


def attend(case: Paged, ops: TritonOps) -> torch.Tensor:
    return ops.attention(case.q, case.k_cache, case.v_cache, case.batch, LLAMA.dim**-0.5, 0)


def _right(case: Paged, ops: TritonOps, name: str) -> Row:
    """The timed inputs themselves, checked on their first and last row."""
    out = attend(case, ops)
    last = case.batch.seq_lens.numel() - 1
    error = 0.0
    for row in {0, last}:
        a, b = case.batch.cu_query[row : row + 2].tolist()
        wanted = attention_reference(case, range(row, row + 1), LLAMA.dim**-0.5, 0)
        error = max(error, float((out[a:b].double() - wanted).norm() / wanted.norm()))
    return Row(name, "relative error", error, "", "lower", target=1e-2)


def _decode(device: torch.device, bandwidth: float) -> list[Row]:
    rows, ops = [], TritonOps()
    for (batch, context), fa3 in FA3_DECODE.items():
        size = 2 * batch * context * LLAMA.kv * LLAMA.dim * 2
        case = paged([1] * batch, [context] * batch, LLAMA, PAGE, BF16, device)
        name = f"decode {batch} × {context}"
        rows.append(_right(case, ops, name))
        plain = microseconds(lambda case=case: attend(case, ops))  # type: ignore[misc]
        best = max(fa3, FLASHINFER_DECODE[batch, context])
        rows.append(Row(name, "KV read", size / plain / 1e3, "GB/s", "higher", "FlashAttention-3", fa3,
                        bandwidth / 1e9, best))  # fmt: skip
        rows.append(Row(name, "time", plain, "µs", "lower", "FlashAttention-3", size / fa3 / 1e3,
                        size / bandwidth * 1e6))  # fmt: skip
        case.q = torch.randn(batch * 8, LLAMA.query, LLAMA.dim, device=device).to(BF16)
        case.batch.cu_query = torch.arange(0, 8 * batch + 1, 8, dtype=torch.int32, device=device)
        case.batch.max_query = 8
        case.batch.shared = {}
        verify = microseconds(lambda case=case: attend(case, ops))  # type: ignore[misc]
        limit = 1.15 if context >= 8192 else 1.5
        rows.append(Row(f"verify 8 tokens {batch} × {context}", "time ÷ decode", verify / plain, "×", "lower",
                        target=limit))  # fmt: skip
        del case
    return rows


def _prefill(device: torch.device, rate: float) -> list[Row]:
    rows, ops = [], TritonOps()
    for (batch, context), fa3 in FA3_PREFILL.items():
        case = paged([context] * batch, [context] * batch, LLAMA, PAGE, BF16, device)
        name = f"prefill {batch} × {context}"
        rows.append(_right(case, ops, name))
        taken = microseconds(lambda case=case: attend(case, ops))  # type: ignore[misc]
        work = 2 * batch * context**2 * LLAMA.query * LLAMA.dim  # 4 for QK and PV, half of it masked
        rows.append(Row(name, "causal", work / taken / 1e6, "TFLOP/s", "higher", "FlashAttention-3", fa3, rate / 1e12,
                        PREFILL_TARGET[batch, context]))  # fmt: skip
    return rows


def _small(device: torch.device, bandwidth: float) -> list[Row]:
    """Shapes of Llama-3.1-8B. The floor counts each input and output byte once."""
    rows = []
    for tokens in (1, 64, 8192):
        x, residual = (torch.randn(tokens, 4096, device=device).to(BF16) for _ in range(2))
        weight = torch.randn(4096, device=device).to(BF16)
        gate_up = torch.randn(tokens, 2 * 14336, device=device).to(BF16)
        case = paged([tokens], [tokens], LLAMA, PAGE, BF16, device)
        qkv = torch.randn(tokens, 48 * 128, device=device).to(BF16)
        cos_sin = torch.randn(tokens, 128, device=device)
        batch = case.batch
        works = {
            "rms_norm": (lambda: fused.rms_norm(x, weight, EPS), 2 * x.nbytes),  # noqa: B023
            "add_rms_norm": (lambda: fused.add_rms_norm(x, residual, weight, EPS), 4 * x.nbytes),  # noqa: B023
            "silu_mul": (lambda: fused.silu_mul(gate_up), gate_up.nbytes * 3 // 2),  # noqa: B023
            "rope, KV write": (
                lambda: fused.rope_and_cache(
                    qkv, cos_sin, batch.positions, batch.slots, case.k_cache, case.v_cache, None, None, EPS  # noqa: B023
                ),
                2 * qkv.nbytes + cos_sin.nbytes,
            ),
        }  # fmt: skip
        for name, (work, size) in works.items():
            floor = size / bandwidth * 1e6
            rows.append(Row(f"{name} {tokens} tokens", "time", microseconds(work), "µs", "lower", floor=floor))
    rows.append(_prepare_time(device))
    return rows


def _prepare_time(device: torch.device) -> Row:
    n, length = 256, 8192
    tokens = torch.randint(0, VOCAB, (n, length), dtype=torch.int32, device=device)
    tables = torch.randint(1, 9999, (n, length // PAGE), dtype=torch.int32, device=device)
    rows, starts = torch.randperm(n, device=device).int(), torch.randint(0, length, (n,), device=device).int()
    cu_query = torch.arange(n + 1, dtype=torch.int32, device=device)
    taken = microseconds(
        lambda: prep.prepare(tokens, tables, rows, starts, cu_query, rows, total=n, logits=n, width=length // PAGE,
                             block_size=PAGE, max_query=1)
    )  # fmt: skip
    return Row(f"prepare {n} decodes × {length}", "time", taken, "µs", "lower")


def _draws(device: torch.device, bandwidth: float) -> list[Row]:
    rows = []
    for count in (1, 64):
        logits = (torch.randn(count, VOCAB, device=device) * 3).to(BF16)
        lines = torch.arange(count, dtype=torch.int32, device=device)
        positions = torch.arange(count, device=device)
        table = sampling_table(count, VOCAB, device, top_k=50, top_p=0.9, presence=0.5)
        for name, on in {"plain": (False, False), "filters": (False, True), "penalties, filters": (True, True)}.items():
            flags = {"penalties": on[0], "bias": on[0], "filters": on[1]}
            taken = microseconds(
                lambda flags=flags: sampling.sample(logits, lines, positions, table, **flags)  # type: ignore[misc]  # noqa: B023
            )  # fmt: skip
            floor = logits.nbytes / bandwidth * 1e6
            rows.append(Row(f"sampling {name} {count} × {VOCAB}", "time", taken, "µs", "lower", floor=floor))
    return rows
