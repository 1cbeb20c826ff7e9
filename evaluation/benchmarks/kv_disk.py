"""Where reading a prefix's KV blocks from a disk begins to beat computing them again, on this machine.

    python -m evaluation.benchmarks.kv_disk --folder DIR [--shape qwen06b] [--model PATH.gguf] [--device cpu|cuda]

As `evaluation.benchmarks.swap`: first what the engine measures at its own start (`engines.native.disk_costs`), from
which it decides; then both ways of bringing n tokens into the KV cache timed whole, the files dropped from the system's
memory before each reading. DIR should be on the disk that will serve.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from statistics import median

import torch

from engines.native import disk_costs, memory
from engines.native.disk_store import BlockStore
from engines.native.disk_tier import READERS
from engines.native.runner import ModelRunner
from engines.native.swap_costs import NEVER
from engines.native.swap_costs import measure as measure_swap
from evaluation.benchmarks.swap import LENGTHS, ROUNDS, runner_of, seconds


def read_seconds(runner: ModelRunner, store: BlockStore, readers: ThreadPoolExecutor, tokens: int) -> float:
    """Median time to bring `tokens` tokens from the disk to the device."""
    hosts = range(1, -(-tokens // runner.block_size) + 1)
    digests = [int.from_bytes(os.urandom(32), "big") for _ in hosts]
    for place, (host, digest) in enumerate(zip(hosts, digests, strict=True)):
        store.probe(digest, place, runner.host_view(host))
    times = []
    for _ in range(ROUNDS):
        for digest in digests:
            store.cool(digest)
        runner.synchronize()
        begun = time.perf_counter()
        work = [
            readers.submit(_read, store, runner, digests[first::READERS], hosts[first::READERS])
            for first in range(READERS)
        ]
        wait(work)
        runner.swap_in([(host, host) for host in hosts])
        runner.synchronize()
        times.append(time.perf_counter() - begun)
        if not all(part.result() for part in work):
            raise RuntimeError("a block that was written just now could not be read")
    for digest in digests:
        store.remove(digest)
    return median(times)


def _read(store: BlockStore, runner: ModelRunner, digests: Sequence[int], hosts: Sequence[int]) -> bool:
    return all(store.read(digest, runner.host_view(host)) for digest, host in zip(digests, hosts, strict=True))


def report(name: str, runner: ModelRunner, folder: Path) -> None:
    token_bytes = memory.kv_bytes_per_token(memory.dimensions(runner.config), runner.sizes.dtype)
    device = measure_swap(runner, runner.sizes.max_batched_tokens)
    store = BlockStore(folder, os.urandom(32), runner.host_view(1).nbytes, 2**50)
    with ThreadPoolExecutor(READERS) as readers:
        costs = disk_costs.measure(store, runner.host_view, runner.host_blocks, runner.block_size, readers, device)
        print(f"{name} on {runner.device} in {runner.sizes.dtype}: {token_bytes:,} bytes of KV cache per token")
        rate = f"{token_bytes / costs.disk_s / 1e9:.2f} GB/s" if costs.disk_s else "too fast to tell"
        print(f"  disk to host: {costs.fixed_s * 1e3:.2f} ms + {costs.disk_s * 1e6:.1f} µs per token ({rate})")
        print(f"  host to device and back: {device.fixed_s * 1e3:.3f} ms + {device.swap_s * 1e6:.2f} µs per token")
        print(f"  compute again: {device.recompute_s * 1e6:.2f} µs per token")
        crossover = "nowhere" if costs.crossover >= NEVER else f"{costs.crossover} tokens"
        print(f"  crossover, from which the engine reads: {crossover}")
        print("  tokens      read ms   compute ms   cheaper    engine's choice")
        for tokens in LENGTHS:
            if tokens > min(runner.max_model_len - 1, (runner.num_blocks - 1) * runner.block_size):
                break
            if -(-tokens // runner.block_size) > runner.host_blocks:
                break
            read = read_seconds(runner, store, readers, tokens) * 1e3
            compute = seconds(runner, "compute", tokens) * 1e3
            cheaper, choice = (
                "read" if read < compute else "compute",
                "read" if tokens >= costs.crossover else "compute",
            )
            print(f"  {tokens:6d} {read:12.3f} {compute:12.2f}   {cheaper:10s} {choice}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="evaluation.benchmarks.kv_disk", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="on the disk to be measured; left as it was")
    parser.add_argument("--shape", nargs="*", default=["tiny"], help="llama8b, qwen06b, tiny")
    parser.add_argument("--model", type=Path, help="a GGUF file instead")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    for shape in [""] if arguments.model else arguments.shape:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            runner = runner_of(shape, arguments.model, arguments.device)
            report(shape or arguments.model.name, runner, Path(folder))


if __name__ == "__main__":
    main()
