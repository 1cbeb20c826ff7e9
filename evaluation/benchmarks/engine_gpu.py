"""The native engine offline on a GPU, token ids in and out, beside vLLM's figures for the same work.

    python -m evaluation.benchmarks.engine_gpu [--shape llama8b qwen06b] [--profile] [--out FOLDER]

T(N): wall time of one call for N output tokens of each prompt, median over rounds, after a call that compiles.
TPOT = (T(N) − T(1)) / (N − 1). Random bf16 weights made on the GPU, greedy, no stop token, no prefix cache; what the
engine draws is compared first (`engine_agreement`). With --profile: where one decode step spends its time.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from engines.native.config import EngineConfig
from engines.native.models.config import DecoderConfig
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from evaluation.benchmarks import engine_agreement, engine_profile, report, shapes
from evaluation.benchmarks.engine_cases import BATCHED, BLOCKS, CASES, LENGTH, PEER, ROWS, Case
from evaluation.benchmarks.random_model import TINY, random_runner
from evaluation.benchmarks.report import Row


def engine_of(name: str) -> tuple[EngineConfig, ModelRunner]:
    """Sizes as vLLM had them; "tiny" is for a CPU."""
    if name == "tiny":
        config = EngineConfig(
        speculation="off",
            format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=64, max_num_seqs=4,
            max_batched_tokens=32, prefix_cache=False,
        )  # fmt: skip
        return config, random_runner(TINY, config, seed=1)
    config = EngineConfig(
        speculation="off",
        format="safetensors", paths={}, device="cuda", dtype="bfloat16", max_model_len=LENGTH, max_num_seqs=ROWS,
        max_batched_tokens=BATCHED, prefix_cache=False,
    )  # fmt: skip
    return config, random_runner(shapes.shape(name), config, seed=1)


def prompts(chooser: random.Random, batch: int, length: int, shape: DecoderConfig) -> list[list[int]]:
    margin = 1000 if shape.vocab > 4000 else 0  # special tokens live at the ends of a real vocabulary
    return [[chooser.randrange(margin, shape.vocab - margin) for _ in range(length)] for _ in range(batch)]


def seconds(config: EngineConfig, runner: ModelRunner, asked: list[list[int]], outputs: int) -> float:
    """Wall time of one call. Raises RuntimeError if a request did not get its tokens."""
    engine = Offline(config, runner)
    params = SamplingParams(temperature=0, max_tokens=outputs)
    begun = time.perf_counter()
    results = engine.generate(asked, params)
    taken = time.perf_counter() - begun
    for result in results:
        if len(result.token_ids) != outputs:
            raise RuntimeError(
                f"a request ended after {len(result.token_ids)} tokens: {result.finish} {result.message}"
            )
    return taken


def measure(name: str, case: Case, config: EngineConfig, runner: ModelRunner, chooser: random.Random) -> Row:
    def times(outputs: int) -> list[float]:
        fresh = (prompts(chooser, case.batch, case.inputs, runner.config) for _ in range(case.rounds))
        return [seconds(config, runner, asked, outputs) for asked in fresh]

    for _ in range(3 if case.kind == "prefill" else 1):  # compiles; a library plans for lengths that keep coming
        seconds(config, runner, prompts(chooser, case.batch, case.inputs, runner.config), case.outputs)
    whole = times(case.outputs)
    print(f"{name} {case.name}: T({case.outputs}) = {', '.join(f'{taken:.4f}' for taken in whole)} s", flush=True)
    label, (peer, floor, target) = f"{name} {case.name}", case.figures
    against = PEER if peer is not None else ""
    if case.kind == "mixed":
        rate = case.batch / median(whole)
        return Row(f"{label}, {case.outputs} out", "rate", rate, "req/s", "higher", against, peer, floor, target)
    if case.kind == "prefill":
        return Row(label, "T(1)", median(whole) * 1e3, "ms", "lower", against, peer, floor, target)
    first = times(1)
    print(f"{name} {case.name}: T(1) = {', '.join(f'{taken:.4f}' for taken in first)} s", flush=True)
    each = (median(whole) - median(first)) / (case.outputs - 1) * 1e3
    metric = f"TPOT = (T({case.outputs}) − T(1)) / {case.outputs - 1}"
    return Row(label, metric, each, "ms", "lower", against, peer, floor, target)


def pool_row(name: str, runner: ModelRunner) -> Row:
    peer = BLOCKS[name]
    return Row(f"{name} KV cache", "blocks of 16", runner.num_blocks, "blocks", "higher", PEER, peer, target=peer)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=sorted(CASES), default=["llama8b", "qwen06b"])
    parser.add_argument("--profile", action="store_true", help="one decode step's kernels instead of the table")
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    parser.add_argument("--limit-s", type=float, default=450, help="no case begins after so many seconds")
    options = parser.parse_args(arguments)
    needs_gpu = options.profile or options.shape != ["tiny"]
    if needs_gpu and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; only --shape tiny, without --profile, runs on a CPU")
    device_name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    name = "engine_gpu_profile" if options.profile else "engine_gpu"
    command = "python -m evaluation.benchmarks.engine_gpu" + (" --profile" if options.profile else "")
    deadline = time.monotonic() + options.limit_s
    rows: list[Row] = []

    def keep(*more: Row) -> None:
        """Written after each case: a run that is cut off leaves what it had."""
        rows.extend(more)
        report.write(name, options.device, device_name, rows, options.out, ("torch", "triton"), command, options.commit)

    if not options.profile:
        keep(engine_agreement.run(torch.device("cuda" if needs_gpu else "cpu")))
    for shape in options.shape:
        config, runner = engine_of(shape)
        if options.profile:
            for batch in engine_profile.BATCHES:
                asked = prompts(random.Random(1), batch, engine_profile.INPUTS, runner.config)
                keep(*engine_profile.run(shape, config, runner, asked))
        else:
            _cases(shape, config, runner, deadline, keep)
        if needs_gpu:
            plan, peak = runner.sizes.plan, torch.cuda.max_memory_allocated()
            beside = peak - plan.weights - plan.kv_cache
            planned = plan.activations + plan.overhead
            print(f"{shape}: {beside:,} bytes at the peak beside weights and KV cache; {planned:,} planned", flush=True)
        del runner
        gc.collect()
        torch.cuda.empty_cache()
    print(report.table(rows))
    return 1 if any(row.metric == engine_agreement.METRIC and not row.ok for row in rows) else 0


def _cases(name: str, config: EngineConfig, runner: ModelRunner, deadline: float, keep: Callable[..., None]) -> None:
    chooser = random.Random(1)
    if name in BLOCKS:
        keep(pool_row(name, runner))
    for case in CASES[name]:
        if time.monotonic() > deadline:
            print(f"{name} {case.name}: not run, the time is over (--limit-s)", flush=True)
            continue
        keep(measure(name, case, config, runner, chooser))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
