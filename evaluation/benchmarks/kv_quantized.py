"""Keys and values in 8 bits on a GPU: right, how fast attention reads them, and what a decode gains end to end.

    python -m evaluation.benchmarks.kv_quantized [--only checks tiles times engine] [--out FOLDER]

Every section is tried whatever became of the others, and each figure is printed as it comes. Speedups are over our own
kernel and engine with bf16 keys and values in the same run. Under TRITON_INTERPRET=1 on a CPU: checks at tiny shapes,
and a tiny engine.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch

from engines.native.config import EngineConfig
from engines.native.kernels import INTERPRETED, attention, attention_plan, fused
from engines.native.kernels.attention_plan import Tile
from engines.native.kernels.quantized_keys import FP8_UNIT
from engines.native.kernels.quantized_write import quantized_rope_and_cache
from engines.native.ops.quantized_kv_triton import QuantizedKvTritonOps
from engines.native.ops.triton_ops import TritonOps
from engines.native.quantized_kv import Fp8Pool, Int8Pool, QuantizedPool
from engines.native.runner import ModelRunner
from evaluation.benchmarks import report, shapes
from evaluation.benchmarks.engine_gpu import prompts, seconds
from evaluation.benchmarks.gpu_timing import copy_bandwidth, microseconds
from evaluation.benchmarks.kernel_cases import Heads, Paged, paged
from evaluation.benchmarks.kernel_checks import EPS, attention_reference
from evaluation.benchmarks.random_model import TINY, random_runner
from evaluation.benchmarks.report import Row

KINDS = ("fp8", "int8")
FORMS = {FP8_UNIT: "fp8", "fp8": "fp8", "int8": "int8"}
"""How a kernel takes pools apart → kind of the pools."""
LLAMA, PAGE, BF16 = Heads(32, 8, 128), 16, torch.bfloat16
DECODES = [*itertools.product((1, 16, 64, 256), (1024, 8192)), (32, 8192)]
"""(batch, context)."""
ALONE, END_TO_END = 1.8, 1.38  # times as fast as bf16, at 32 × 8,192
SWEEP = [(16, 8192), (32, 8192), (64, 1024)]
DECODE_TILES = [
    Tile(16, 32, 1, 4), Tile(16, 32, 1, 6), Tile(16, 32, 2, 4), Tile(16, 64, 1, 3), Tile(16, 64, 2, 3),
    Tile(16, 64, 2, 4), Tile(16, 64, 4, 3), Tile(16, 128, 4, 2), Tile(16, 128, 4, 3),
]  # fmt: skip
OTHER_TILES = {
    "chunk": [Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 128, 4, 2), Tile(32, 64, 4, 3)],
    "prefill": [Tile(128, 64, 8, 3), Tile(128, 64, 4, 2), Tile(64, 64, 4, 3), Tile(128, 128, 8, 2)],
}
OUTPUTS, ROUNDS = 128, 2


def rounded(cache: torch.Tensor, kind: str) -> QuantizedPool:
    """A pool [B, hk, s, d] in 8 bits; of block 0, which nobody owns, whatever comes of it."""
    dtype, values = cache.dtype, torch.empty(cache.shape, dtype=torch.int8, device=cache.device)
    if kind == "fp8":
        scales = torch.rand(cache.shape[1], device=cache.device) * 0.01 + 0.01
        pool: QuantizedPool = Fp8Pool(values, scales, dtype)
    else:
        pool = Int8Pool(values, torch.empty(cache.shape[:3], device=cache.device), dtype)
    places = torch.arange(cache.shape[0] * cache.shape[2], device=cache.device)
    for some in places.split(2**18):  # in parts, as they pass through float32
        at = some // cache.shape[2], slice(None), some % cache.shape[2]
        pool.write(some, cache[at])
    return pool


def meant(pool: QuantizedPool) -> torch.Tensor:
    """[B, hk, s, d], float64."""
    if isinstance(pool, Fp8Pool):
        return pool.values.view(torch.float8_e4m3fn).double() * pool.scales.double()[:, None, None]
    return pool.values.double() * pool.scales.double()[..., None]


def used(form: str) -> AbstractContextManager[object]:
    """Pools are taken apart so, whatever the device has."""
    return patch.object(attention, "form", lambda *_: form)


def checks(device: torch.device) -> Iterator[Row]:
    """Against float64 on the rounded values: what is left is what the kernel itself loses."""
    queries, lengths, dtypes = [1, 8, 1, 300, 77], [4000, 900, 3, 1500, 77], (torch.bfloat16, torch.float16)
    heads: tuple[Heads, ...] = (LLAMA, Heads(9, 3, 64), Heads(4, 1, 256), Heads(6, 6, 80))
    if INTERPRETED:
        queries, lengths, heads, dtypes = [1, 9, 2], [20, 12, 6], (Heads(3, 1, 16),), (torch.float32,)
    forms = {kind: kind for kind in KINDS} if INTERPRETED else FORMS
    kinds = [(head, dtype) for head in heads for dtype in dtypes if head is heads[0] or dtype is dtypes[0]]
    for (form, kind), (head, dtype) in itertools.product(forms.items(), kinds):
        for name, chosen in (("decode", [1] * len(lengths)), ("mixed", queries)):
            case, ops = paged(chosen, lengths, head, PAGE, dtype, device), QuantizedKvTritonOps()
            keys, values = rounded(case.k_cache, kind), rounded(case.v_cache, kind)
            read = Paged(case.q, meant(keys), meant(values), case.batch)
            for window in (0, 200)[: 2 if head is heads[0] else 1]:
                with used(form):
                    out = ops.attention(case.q, keys, values, case.batch, head.dim**-0.5, window)
                    again = ops.attention(case.q, keys, values, case.batch, head.dim**-0.5, window)
                wanted = attention_reference(read, range(len(lengths)), head.dim**-0.5, window)
                error = float((out.double() - wanted).norm() / wanted.norm())
                error += 0.0 if torch.equal(out, again) else float("nan")
                yield Row(
                    f"{form} {name} {head.query}/{head.kv}×{head.dim} window {window} {dtype}",
                    "relative error", error, "", "lower", target=5e-3,
                )  # fmt: skip
    for kind, head in itertools.product(KINDS, heads):
        yield _written(kind, head, dtypes[0], device)


def _written(kind: str, head: Heads, dtype: torch.dtype, device: torch.device) -> Row:
    """Bytes that differ from what plain torch rounds, of the keys and values that the bf16 kernel writes exactly."""
    case = paged([40 if INTERPRETED else 500], [40 if INTERPRETED else 500], head, PAGE, dtype, device)
    qkv = torch.randn(len(case.q), (head.query + 2 * head.kv) * head.dim, device=device)
    cos_sin = torch.randn(501, head.dim, device=device).tanh()
    exact = [torch.zeros(case.k_cache.shape, device=device) for _ in range(2)]
    at = case.batch.positions, case.batch.slots
    fused.rope_and_cache(qkv, cos_sin, *at, *exact, None, None, EPS)
    wanted = [rounded(pool, kind) for pool in exact]
    made = [type(pool)(torch.zeros_like(pool.values), pool.scales.clone(), dtype) for pool in wanted]
    quantized_rope_and_cache(qkv, cos_sin, *at, *made, None, None, EPS)
    places = at[1] // PAGE, slice(None), at[1] % PAGE
    differ = torch.cat([(a.values[places].int() - b.values[places].int()).abs() for a, b in zip(made, wanted)])  # noqa: B905
    share = float((differ > 0).float().mean()) + (0.0 if int(differ.max()) <= 1 else float("nan"))
    return Row(f"{kind} written {head.query}/{head.kv}×{head.dim}", "bytes one step off", share, "", "lower",
               target=0.02)  # fmt: skip


class Timed:
    """One shape with its pools in each form. queries: tokens of each row."""

    def __init__(self, batch: int, context: int, device: torch.device, queries: int = 1) -> None:
        self.case = paged([queries] * batch, [context] * batch, LLAMA, PAGE, BF16, device)
        self.pools = {kind: (rounded(self.case.k_cache, kind), rounded(self.case.v_cache, kind)) for kind in KINDS}
        self.size = 2 * batch * context * LLAMA.kv * LLAMA.dim * 2

    def us(self, kind: str = "", repeats: int = 20) -> float:
        case, ops = self.case, QuantizedKvTritonOps() if kind else TritonOps()
        keys, values = self.pools[kind] if kind else (case.k_cache, case.v_cache)
        case.batch.shared = {}
        return microseconds(
            lambda: ops.attention(case.q, keys, values, case.batch, LLAMA.dim**-0.5, 0), repeats
        )  # fmt: skip


def tiles(device: torch.device) -> Iterator[Row]:
    """Times for other tiles and forms than those that are chosen, which stay as they were."""
    for kind_of, candidates, shapes_of in (
        ("decode", DECODE_TILES, [(*shape, 1) for shape in SWEEP]),
        ("chunk", OTHER_TILES["chunk"], [(16, 8192, 8)]),
        ("prefill", OTHER_TILES["prefill"], [(2, 8192, 2048)]),
    ):
        timed = [Timed(batch, context, device, queries) for batch, context, queries in shapes_of]
        plain = [each.us() for each in timed]
        for (form, kind), tile in itertools.product(FORMS.items(), candidates):
            with patch.dict(attention_plan.HOPPER_8BIT, {(LLAMA.dim, kind_of): tile}), used(form):
                name = f"tile {tile.block_m},{tile.block_n},{tile.warps},{tile.stages} {form} {kind_of}"
                try:
                    for before, each, (batch, context, _) in zip(plain, timed, shapes_of, strict=True):
                        found = before / each.us(kind, 10)
                        yield Row(f"{name} {batch} × {context}", "speedup", found, "×", "higher")
                except Exception:  # a tile that does not fit: the next one may
                    print(name, traceback.format_exc(limit=1).splitlines()[-1][:200], flush=True)


def times(device: torch.device) -> Iterator[Row]:
    bandwidth = copy_bandwidth()
    yield Row("copy 2 GiB", "read + written", bandwidth / 1e9, "GB/s", "higher")
    for batch, context in DECODES:
        timed = Timed(batch, context, device)
        plain = timed.us()
        name = f"decode {batch} × {context}"
        yield Row(f"{name} bf16", "KV read", timed.size / plain / 1e3, "GB/s", "higher", floor=bandwidth / 1e9)
        for kind in KINDS:
            taken = timed.us(kind)
            read = sum(plane.nbytes for pool in timed.pools[kind] for plane in pool.planes)
            yield Row(f"{name} {kind}", "KV read", read / taken / 1e3, "GB/s", "higher", floor=bandwidth / 1e9)
            yield Row(f"{name} {kind}", "time", taken, "µs", "lower", "our bf16", plain, read / bandwidth * 1e6)
            yield Row(f"{name} {kind}", "speedup", plain / taken, "×", "higher",
                      target=ALONE if (batch, context) == (32, 8192) else None)  # fmt: skip
        del timed
    for queries, batch, context in ((8, 16, 8192), (2048, 2, 8192)):
        timed = Timed(batch, context, device, queries)
        plain = timed.us()
        for kind in KINDS:
            yield Row(f"{queries} tokens at {batch} × {context} {kind}", "time", timed.us(kind), "µs", "lower",
                      "our bf16", plain)  # fmt: skip
        del timed
    for tokens in (32, 8192):
        yield from _write_times(tokens, device)


def _write_times(tokens: int, device: torch.device) -> Iterator[Row]:
    case = paged([tokens], [tokens], LLAMA, PAGE, BF16, device)
    qkv = torch.randn(tokens, 48 * 128, device=device).to(BF16)
    cos_sin, at = torch.randn(tokens, 128, device=device), (case.batch.positions, case.batch.slots)
    plain = microseconds(lambda: fused.rope_and_cache(qkv, cos_sin, *at, case.k_cache, case.v_cache, None, None, EPS))
    for kind in KINDS:
        keys, values = rounded(case.k_cache, kind), rounded(case.v_cache, kind)
        taken = microseconds(
            lambda: quantized_rope_and_cache(qkv, cos_sin, *at, keys, values, None, None, EPS)  # noqa: B023
        )
        yield Row(f"rope, KV write {tokens} tokens {kind}", "time", taken, "µs", "lower", "our bf16", plain)


def engine(device: torch.device) -> Iterator[Row]:
    """TPOT at batch 32 with 8,192 tokens before: (T(N) − T(1)) / (N − 1), as `engine_gpu` has it."""
    batch, length, outputs = (32, 8192, OUTPUTS) if device.type == "cuda" else (2, 12, 6)
    found: dict[str, float] = {}
    for kind in ("auto", *KINDS):
        config, runner = _engine(kind, device)
        chooser = random.Random(1)

        def times_of(count: int, rounds: int, config: EngineConfig, runner: ModelRunner) -> float:
            asked = [prompts(chooser, batch, length, runner.config) for _ in range(rounds)]  # noqa: B023
            return median(seconds(config, runner, each, count) for each in asked)

        times_of(outputs, 1, config, runner)  # compiles and captures
        whole, first = times_of(outputs, ROUNDS, config, runner), times_of(1, ROUNDS, config, runner)
        each = (whole - first) / (outputs - 1) * 1e3
        name = "bf16" if kind == "auto" else kind
        yield Row(f"llama8b decode {batch} × {length}, KV {name}", "TPOT", each, "ms", "lower")
        yield Row(f"llama8b prefill {batch} × {length}, KV {name}", "T(1)", first * 1e3, "ms", "lower")
        yield Row(f"llama8b KV cache, {name}", "blocks of 16", runner.num_blocks, "blocks", "higher")
        found[kind] = each
        if kind != "auto":
            yield Row(f"llama8b decode {batch} × {length}, KV {name}", "speedup", found["auto"] / each, "×", "higher",
                      target=END_TO_END if kind == "fp8" and device.type == "cuda" else None)  # fmt: skip
        del runner
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _engine(kind: str, device: torch.device) -> tuple[EngineConfig, ModelRunner]:
    cuda = device.type == "cuda"
    config = EngineConfig(
        format="safetensors", paths={}, device=device.type, dtype="bfloat16" if cuda else "float32",
        max_model_len=8448 if cuda else 64, max_num_seqs=256 if cuda else 4,
        max_batched_tokens=16_384 if cuda else 32, prefix_cache=False, kv_cache_dtype=kind,
    )  # fmt: skip
    return config, random_runner(shapes.shape("llama8b") if cuda else TINY, config, seed=1)


SECTIONS: dict[str, Callable[[torch.device], Iterable[Row]]] = {
    "checks": checks,
    "tiles": tiles,
    "times": times,
    "engine": engine,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=["checks", "times", "engine"])
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[Row] = []
    failed = False
    for name in options.only:
        if device.type != "cuda" and name in ("tiles", "times"):
            continue
        try:
            for row in SECTIONS[name](device):
                rows.append(row)
                print(report.table([row]).splitlines()[1], flush=True)
        except Exception:  # the other sections have figures of their own
            failed = True
            print(f"{name} failed:", traceback.format_exc(), flush=True)
    if device.type == "cuda":
        path = report.write("kv_quantized", options.device, torch.cuda.get_device_name(), rows, options.out,
                            ("torch", "triton"), commit=options.commit)  # fmt: skip
        print(path)
    wrong = [row for row in rows if row.metric in ("relative error", "bytes one step off") and not row.ok]
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
