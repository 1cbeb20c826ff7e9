"""Where swapping a preempted request's KV blocks to the host begins to beat computing them again, on this machine.

    python -m evaluation.benchmarks.swap [--shape llama8b qwen06b] [--model PATH.gguf] [--device cpu|cuda]

Random weights for a shape (bfloat16 on a GPU, float32 on a CPU), or a real model. First what the engine measures at its
own start (`engines.native.swap_costs`), from which it decides; then both ways of bringing a request of n tokens back,
timed whole, so that the decision can be checked: the cheaper one must change at about the crossover.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from engines.native import memory
from engines.native.config import EngineConfig
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.step import StepPlan
from engines.native.swap_costs import NEVER, measure
from evaluation.benchmarks import shapes
from evaluation.benchmarks.random_model import TINY, random_runner

LENGTHS = (16, 64, 256, 1024, 4096)
LONGEST = max(LENGTHS)
ROUNDS = 3
CHUNK = {"cpu": 512, "cuda": 8192}


def runner_of(shape: str, model: Path | None, device: str) -> ModelRunner:
    """One row that can be of LONGEST tokens (or the model's own length), and host memory for its blocks."""
    block = 16
    length = 0 if model or shape == "tiny" else LONGEST + block
    config = EngineConfig(
        speculation="off",
        format="gguf" if model else "safetensors", paths={model.name: str(model)} if model else {}, device=device,
        dtype="bfloat16" if device == "cuda" else "float32", max_model_len=length, max_num_seqs=1,
        max_batched_tokens=CHUNK[device], block_size=block, swap_space_bytes=1 << 30,
    )  # fmt: skip
    if model:
        return build_runner(config)
    return random_runner(TINY if shape == "tiny" else shapes.shape(shape), config, seed=1)


def seconds(runner: ModelRunner, work: str, tokens: int) -> float:
    """Median time to bring `tokens` tokens back into the KV cache."""
    size = runner.block_size
    blocks = -(-tokens // size)
    times = []
    for _ in range(ROUNDS):
        runner.synchronize()
        begun = time.perf_counter()
        if work == "swap":
            runner.swap_out([(block, block) for block in range(1, blocks + 1)])
            runner.swap_in([(block, block) for block in range(1, blocks + 1)])
        else:
            _compute(runner, tokens, list(range(1, blocks + 1)))
        runner.synchronize()
        times.append(time.perf_counter() - begun)
    return median(times)


def _compute(runner: ModelRunner, tokens: int, blocks: list[int]) -> None:
    runner.add(0, [0] * tokens, SamplingParams(temperature=0), tokens)
    chunk = CHUNK[runner.device.type]
    for start in range(0, tokens, chunk):
        count = min(chunk, tokens - start)
        row, first, much = np.array([[0], [start], [count]], np.int32)
        new = [(0, 0, blocks)] if not start else []
        runner.launch(StepPlan(row, first, much, sample=np.array([start + count == tokens]), new_blocks=new)).wait()


def report(name: str, runner: ModelRunner) -> None:
    shape = memory.dimensions(runner.config)
    token_bytes = memory.kv_bytes_per_token(shape, runner.sizes.dtype)
    costs = measure(runner, runner.sizes.max_batched_tokens)
    print(f"{name} on {runner.device} in {runner.sizes.dtype}: {token_bytes:,} bytes of KV cache per token")
    rate = f"{2 * token_bytes / costs.swap_s / 1e9:.1f} GB/s" if costs.swap_s else "too fast to tell"
    print(f"  swap, out and in: {costs.fixed_s * 1e6:.0f} µs + {costs.swap_s * 1e6:.3f} µs per token ({rate})")
    print(f"  compute again: {costs.recompute_s * 1e6:.2f} µs per token")
    crossover = "nowhere" if costs.crossover >= NEVER else f"{costs.crossover} tokens"
    print(f"  crossover, from which the engine swaps: {crossover}")
    print("  tokens      swap ms   compute ms   cheaper    engine's choice")
    for tokens in LENGTHS:
        if tokens > min(runner.max_model_len - 1, (runner.num_blocks - 1) * runner.block_size):
            break
        if -(-tokens // runner.block_size) > runner.host_blocks:
            break
        swap, compute = (seconds(runner, work, tokens) * 1e3 for work in ("swap", "compute"))
        cheaper, choice = "swap" if swap < compute else "compute", "swap" if tokens >= costs.crossover else "compute"
        print(f"  {tokens:6d} {swap:12.3f} {compute:12.2f}   {cheaper:10s} {choice}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="evaluation.benchmarks.swap", description=__doc__)
    parser.add_argument("--shape", nargs="*", default=["tiny"], help="llama8b, qwen06b, tiny")
    parser.add_argument("--model", type=Path, help="a GGUF file instead")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    for shape in [""] if arguments.model else arguments.shape:
        name = shape or arguments.model.name
        report(name, runner_of(shape, arguments.model, arguments.device))


if __name__ == "__main__":
    main()
