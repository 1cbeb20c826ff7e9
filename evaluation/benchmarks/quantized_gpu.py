"""Quantized weights on a GPU: right on fresh random inputs; what a product takes; what the engine makes of it.

    python -m evaluation.benchmarks.quantized_gpu [--only checks tiles times engine] [--schemes fp8 w4a16 int8]

checks   every scheme against float64, one row to many
tiles    candidates for the kernels' tables, the best of them printed; not part of a run without --only
times    each product of Llama-3.1-8B by scheme and rows beside bfloat16 and the floor (the weight's bytes at the
         bandwidth of a copy)
engine   Llama-3.1-8B with random weights, layers quantized and the head not, as `engine_gpu` runs it, bf16 beside

Rows are printed as they come, and written after each part: a run that is cut off leaves what it had.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from engines.native.config import EngineConfig
from engines.native.layers.linear import Linear, Method
from engines.native.layers.quantized import Place
from engines.native.layers.quantized_gpu import GpuMethod
from evaluation.benchmarks import quantized_checks, quantized_tiles, quantized_times, report, shapes
from evaluation.benchmarks.engine_cases import BATCHED, LENGTH, PEER, ROWS, Case
from evaluation.benchmarks.engine_gpu import measure
from evaluation.benchmarks.gpu_timing import copy_bandwidth
from evaluation.benchmarks.quantized_cases import SCHEMES, quantized
from evaluation.benchmarks.random_model import random_runner
from evaluation.benchmarks.report import Row

PARTS = ("checks", "tiles", "times", "engine")
ENGINE = ("fp8", "w4a16", "int8")
BATCHES = (1, 8, 32, 64, 128)
HEAD = 128_256 * 4096 * 2  # bytes, never quantized
LAYERS = 32 * (6144 * 4096 + 4096 * 4096 + 28_672 * 4096 + 4096 * 14_336)  # values
KEYS = 32 * 2 * 8 * 128 * 2  # bytes of the KV cache for a token
FP8 = {
    "decode 1": (3.49, 1.95, 2.4), "decode 32": (4.51, 2.2, 3.0), "decode 128": (5.90, 3.4, 4.4),
    "prefill 1": (148, None, 135), "prefill 64": (987, None, 900),
}  # fmt: skip
"""(vLLM 0.26.0's fp8, floor, target): shared/BENCHMARKS.md."""
FASTER = {("w4a16", "decode 1"): 2.4, ("int8", "prefill 1"): 1.4, ("int8", "prefill 64"): 1.4}
"""How many times as fast as bf16 in the same run; w4a16 no slower up to batch 64."""


def cases() -> list[Case]:
    decodes = [Case("decode", batch, 512 if batch == 1 else 128, 256, rounds=2) for batch in BATCHES]
    return [*decodes, Case("prefill", 1, 8192, 1), Case("prefill", 64, 1024, 1, rounds=2)]


def kept(scheme: str) -> Method | None:
    if scheme == "bf16":
        return None

    def method(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        place = Place(weight.device, weight.dtype)
        made = quantized(weight, SCHEMES[scheme])
        refused = GpuMethod().refusal(made, place)
        if refused:
            raise ValueError(f"{scheme}: {refused}")
        return GpuMethod().make(made, bias, place)

    return method


def engine(
    schemes: list[str], bandwidth: float, deadline: float, keep: Callable[..., None], batches: list[int] | None
) -> None:  # fmt: skip
    """bf16 first: the others' peer. batches: of decodes alone; None: all of them, and prompts."""
    config = EngineConfig(
        speculation="off",
        format="safetensors", paths={}, device="cuda", dtype="bfloat16", max_model_len=LENGTH, max_num_seqs=ROWS,
        max_batched_tokens=BATCHED, prefix_cache=False,
    )  # fmt: skip
    bf16: dict[str, float] = {}
    for scheme in ["bf16", *schemes]:
        runner = random_runner(shapes.shape("llama8b"), config, 1, kept(scheme))
        for case in cases():
            if batches is not None and (case.kind != "decode" or case.batch not in batches):
                continue
            if time.monotonic() > deadline:
                print(f"{scheme} {case.name}: not run, the time is over (--limit-s)", flush=True)
                continue
            try:
                row = measure(f"llama8b {scheme}", case, config, runner, random.Random(1))
            except Exception:  # the other cases are still to be seen
                traceback.print_exc()
                continue
            key = f"{case.kind} {case.batch}"
            if scheme == "bf16":
                bf16[key] = row.value
            else:
                _judge(scheme, key, case, row, bf16, bandwidth)
            keep(row)
        del runner
        gc.collect()
        torch.cuda.empty_cache()


def _judge(scheme: str, key: str, case: Case, row: Row, bf16: dict[str, float], bandwidth: float) -> None:
    """Peer, floor and target of one figure."""
    weights = LAYERS * SCHEMES[scheme].weight.bits / 8 + HEAD
    if SCHEMES[scheme].weight.group:
        weights += LAYERS / SCHEMES[scheme].weight.group * 2
    if case.kind == "decode":
        row.floor = (weights + case.batch * (case.inputs + case.outputs / 2) * KEYS) / bandwidth * 1e3
    if scheme == "fp8" and key in FP8:
        row.peer, (row.peer_value, floor, row.target) = PEER + " fp8", FP8[key]
        row.floor = floor or row.floor
    elif key in bf16:
        row.peer, row.peer_value = "bf16, ours", bf16[key]
        if (scheme, key) in FASTER:
            row.target = bf16[key] / FASTER[scheme, key]
        elif scheme == "w4a16" and case.kind == "decode" and case.batch <= 64:
            row.target = bf16[key]
    if row.target is not None:
        row.ok = row.value <= row.target


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=["checks", "times", "engine"])
    parser.add_argument("--schemes", nargs="+", choices=sorted(SCHEMES), help="default: all checked, three timed")
    parser.add_argument("--rows", type=int, nargs="+", help="of tiles, and of the engine's decodes; default: all")
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    parser.add_argument("--limit-s", type=float, default=480, help="no engine case begins after so many seconds")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.limit_s
    gpu = torch.cuda.is_available()
    if not gpu and options.only != ["checks"]:
        parser.error("torch sees no GPU here: only --only checks runs, with TRITON_INTERPRET=1")
    name = torch.cuda.get_device_name() if gpu else "CPU"
    rows: list[Row] = []

    def keep(*more: Row) -> None:
        rows.extend(more)
        print(report.table(list(more)), flush=True)
        if gpu:
            report.write("quantized_gpu", options.device, name, rows, options.out, ("torch", "triton"),
                         "python -m evaluation.benchmarks.quantized_gpu", options.commit)  # fmt: skip

    device = torch.device("cuda" if gpu else "cpu")
    timed = options.schemes or list(ENGINE)
    bandwidth = copy_bandwidth() if gpu else 1.0
    print(f"copy: {bandwidth / 1e9:.0f} GB/s", flush=True)

    def checks() -> None:
        for part in quantized_checks.run(options.schemes or sorted(SCHEMES), device):
            keep(*part)

    def tiles() -> None:
        for line in quantized_tiles.run(timed, bandwidth, options.rows):
            print(line, flush=True)

    def times() -> None:
        for part in quantized_times.run(timed, bandwidth):
            keep(*part)

    parts: dict[str, Callable[[], None]] = {
        "checks": checks, "tiles": tiles, "times": times,
        "engine": lambda: engine(timed, bandwidth, deadline, keep, options.rows),
    }  # fmt: skip
    for part in options.only:
        begun = time.monotonic()
        try:
            parts[part]()
        except Exception:  # the other parts are still to be seen
            traceback.print_exc()
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    wrong = [row for row in rows if row.metric == quantized_checks.METRIC and not row.ok]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
