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
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch

from engines.native.config import EngineConfig
from engines.native.draft import Step
from engines.native.kernels import INTERPRETED, attention, attention_plan, fused, quantized_pages
from engines.native.kernels.attention_plan import Tile
from engines.native.kernels.quantized_keys import FP8_UNIT
from engines.native.kernels.quantized_write import quantized_rope_and_cache
from engines.native.offline import Generated, Offline
from engines.native.ops.quantized_kv_triton import QuantizedKvTritonOps
from engines.native.ops.triton_ops import TritonOps
from engines.native.quantized_kv import Fp8Pool, Int8Pool, QuantizedPool
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.step import StepOutput
from evaluation.benchmarks import report, shapes
from evaluation.benchmarks.engine_gpu import prompts
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
ALONE, END_TO_END = 1.8, 1.38  # times as fast as bf16, of fp8 at 32 × 8,192
SWEEP = [(16, 8192), (32, 8192), (64, 1024)]
DECODE_TILES = [
    Tile(16, 32, 1, 4), Tile(16, 32, 1, 6), Tile(16, 32, 2, 4), Tile(16, 64, 1, 3), Tile(16, 64, 2, 3),
    Tile(16, 64, 2, 4), Tile(16, 64, 4, 3), Tile(16, 128, 4, 2), Tile(16, 128, 4, 3),
]  # fmt: skip
OTHER_TILES = {
    "chunk": [Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 128, 4, 2), Tile(32, 64, 4, 3)],
    "prefill": [Tile(128, 64, 8, 3), Tile(128, 64, 4, 2), Tile(64, 64, 4, 3), Tile(128, 128, 8, 2)],
}
OUTPUTS, ROUNDS = 256, 2


def rounded(cache: torch.Tensor, kind: str) -> QuantizedPool:
    """A pool [B, hk, s, d] in 8 bits; of block 0, which nobody owns, whatever comes of it."""
    dtype, values = cache.dtype, torch.empty(cache.shape, dtype=torch.int8, device=cache.device)
    if kind == "fp8":
        scales = torch.rand(cache.shape[1], device=cache.device) * 0.01 + 0.01
        pool: QuantizedPool = Fp8Pool(values, scales, dtype)
    else:
        pool = Int8Pool(values, torch.empty(cache.shape[:3], device=cache.device), dtype)
    places = torch.arange(cache.shape[0] * cache.shape[2], device=cache.device)
    for some in torch.split(places, 2**18):  # in parts, as they pass through float32
        at = some // cache.shape[2], slice(None), some % cache.shape[2]
        pool.write(some, cache[at])
    return pool


def meant(pool: QuantizedPool) -> torch.Tensor:
    """[B, hk, s, d], float64."""
    if isinstance(pool, Fp8Pool):
        return pool.values.view(torch.float8_e4m3fn).double() * pool.scales.double()[:, None, None]
    return pool.values.double() * pool.scales.double()[..., None]


@contextmanager
def used(form: str) -> Iterator[None]:
    """Pools are taken apart so, whatever the device has."""
    with patch.object(attention, "form", lambda *_: form), patch.object(quantized_pages, "form", lambda *_: form):
        yield


def checks(device: torch.device) -> Iterator[Row]:
    """Against float64 on the rounded values: what is left is what the kernels themselves lose. Long chunks are those
    whose keys are widened first."""
    queries, lengths = [1, 8, 1, 100, 77], [4000, 900, 3, 1500, 77]
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
    heads: tuple[Heads, ...] = (LLAMA, Heads(9, 3, 64), Heads(4, 1, 256), Heads(6, 6, 80))
    if INTERPRETED:
        queries, lengths, heads, dtypes = [1, 9, 2], [20, 12, 6], (Heads(3, 1, 16),), (torch.float32,)
    forms = {kind: kind for kind in KINDS} if INTERPRETED else FORMS
    kinds = [(head, dtype) for head in heads for dtype in dtypes if head is heads[0] or dtype is dtypes[0]]
    for (form, kind), (head, dtype) in itertools.product(forms.items(), kinds):
        if (form, device.type) == ("fp8", "cuda") and head is not heads[0]:
            continue  # differs from the form of this GPU in a few instructions, of no shape
        cases = {"decode": [1] * len(lengths), "mixed": queries}
        if not INTERPRETED and dtype is dtypes[0]:
            cases["long chunk"] = [1, 8, 1, 300, 77]
        for name, chosen in cases.items():
            case, ops = paged(chosen, lengths, head, PAGE, dtype, device), QuantizedKvTritonOps()
            keys, values = rounded(case.k_cache, kind), rounded(case.v_cache, kind)
            read = Paged(case.q, meant(keys), meant(values), case.batch)
            for window in (0, 200)[: 2 if (head, dtype) == kinds[0] else 1]:
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
    exact = torch.zeros(2, *case.k_cache.shape, device=device)
    positions, slots = case.batch.positions, case.batch.slots
    fused.rope_and_cache(qkv, cos_sin, positions, slots, exact[0], exact[1], None, None, EPS)
    wanted = [rounded(pool, kind) for pool in exact]
    made = [type(pool)(torch.zeros_like(pool.values), pool.scales.clone(), dtype) for pool in wanted]
    quantized_rope_and_cache(qkv, cos_sin, positions, slots, made[0], made[1], None, None, EPS)
    places = slots // PAGE, slice(None), slots % PAGE
    differ = torch.cat(
        [(a.values[places].int() - b.values[places].int()).abs() for a, b in zip(made, wanted, strict=True)]
    )
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
            few = patch.dict(attention_plan.FEW_8BIT, clear=True)
            with few, patch.dict(attention_plan.HOPPER_8BIT, {(LLAMA.dim, kind_of): tile}), used(form):
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
                      target=ALONE if (kind, batch, context) == ("fp8", 32, 8192) else None)  # fmt: skip
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
            lambda: quantized_rope_and_cache(qkv, cos_sin, *at, keys, values, None, None, EPS)  # noqa: B023 # called in its round
        )
        yield Row(f"rope, KV write {tokens} tokens {kind}", "time", taken, "µs", "lower", "our bf16", plain)


class _Clocked(Offline):
    """decodes: when each step ended in which every one of `batch` requests drew a token after its first, s."""

    def __init__(self, config: EngineConfig, runner: ModelRunner, batch: int) -> None:
        super().__init__(config, runner)
        self.batch, self.decodes = batch, list[float]()

    def _take(self, step: Step, output: StepOutput, results: dict[int, Generated], begun: float) -> None:
        super()._take(step, output, results, begun)
        if len(step.plan.rows) == self.batch and (step.plan.count == 1).all():
            self.decodes.append(time.perf_counter())


def _spent(config: EngineConfig, runner: ModelRunner, asked: list[list[int]], outputs: int) -> tuple[float, float]:
    """Seconds of a call, and of one of its steps of decodes alone."""
    engine, begun = _Clocked(config, runner, len(asked)), time.perf_counter()
    found = engine.generate(asked, SamplingParams(temperature=0, max_tokens=outputs))
    taken, ends = time.perf_counter() - begun, engine.decodes
    short = [each.message or each.finish for each in found if len(each.token_ids) != outputs]
    if short:
        raise RuntimeError(f"{len(short)} requests ended early, the first of them with {short[0]}")
    return taken, (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else 0.0


def engine(device: torch.device) -> Iterator[Row]:
    """At batch 32 with 8,192 tokens before: (T(N) − T(1)) / (N − 1), as `engine_gpu` has it, to which steps that decode
    beside the last prompts belong; and a step of decodes alone."""
    batch, length, outputs = (32, 8192, OUTPUTS) if device.type == "cuda" else (2, 12, 6)
    metric = f"TPOT = (T({outputs}) − T(1)) / {outputs - 1}"
    plain: dict[str, float] = {}
    for kind in ("auto", *KINDS):
        config, runner = _engine(kind, device)
        chooser = random.Random(1)
        asked = [prompts(chooser, batch, length, runner.config) for _ in range(2 * ROUNDS + 2)]
        for _ in range(1 if plain else 2):  # compiles and captures; a library plans once in a process
            _spent(config, runner, asked.pop(), min(outputs, 40))
        whole, steps = zip(*[_spent(config, runner, asked.pop(), outputs) for _ in range(ROUNDS)], strict=True)
        first = median(_spent(config, runner, asked.pop(), 1)[0] for _ in range(ROUNDS))
        found = {metric: (median(whole) - first) / (outputs - 1) * 1e3, "step of decodes": median(steps) * 1e3}
        case = f"llama8b {batch} × {length}, KV {'bf16' if kind == 'auto' else kind}"
        for name, each in found.items():
            yield Row(case, name, each, "ms", "lower")
            if plain:
                target = END_TO_END if (kind, name, device.type) == ("fp8", metric, "cuda") else None
                yield Row(case, f"speedup, {name}", plain[name] / each, "×", "higher", target=target)
        plain = plain or found
        yield Row(f"{case}, prefill", "T(1)", first * 1e3, "ms", "lower")
        yield Row(f"{case}, cache", "blocks of 16", runner.num_blocks, "blocks", "higher")
        del runner
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _engine(kind: str, device: torch.device) -> tuple[EngineConfig, ModelRunner]:
    cuda = device.type == "cuda"
    config = EngineConfig(
        speculation="off",
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
        if device.type == "cuda":  # after each section: a run that is cut off leaves what it had
            report.write("kv_quantized", options.device, torch.cuda.get_device_name(), rows, options.out,
                         ("torch", "triton"), commit=options.commit)  # fmt: skip
    wrong = [row for row in rows if row.metric in ("relative error", "bytes one step off") and not row.ok]
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
