"""Products of few rows: our kernel beside cuBLAS and the floor, for the weights of two models.

`python -m evaluation.benchmarks.linear [--out FOLDER]`, on a GPU; how the table of `engines.native.kernels.linear` was
chosen. Each time is of one launch in a captured chain of them, over so many weights that the L2 cache holds none of
them when it is read again; beside it cuBLAS for the same chain (with silu·mul behind a gated product).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from engines.native.kernels import fused, linear
from evaluation.benchmarks import report
from evaluation.benchmarks.gpu_timing import chain_microseconds, copy_bandwidth
from evaluation.benchmarks.report import Row

WEIGHTS = {
    "llama8b qkv": (6144, 4096), "llama8b o": (4096, 4096), "llama8b gate_up": (28_672, 4096),
    "llama8b down": (4096, 14_336), "llama8b head": (128_256, 4096),
    "qwen06b qkv": (4096, 1024), "qwen06b o": (1024, 2048), "qwen06b gate_up": (6144, 1024),
    "qwen06b down": (1024, 3072), "qwen06b head": (151_936, 1024),
}  # fmt: skip
"""[outputs, inputs]"""
ROWS = (1, 8, 32, 64, 128, 256)
BYTES = 500_000_000  # of the weights of one chain: several times the L2 cache


def measure(name: str, bandwidth: float) -> list[Row]:
    outputs, inputs = WEIGHTS[name]
    gated, whole = name.endswith("gate_up"), name.endswith("head")
    size = outputs * inputs * 2
    copies = min(64, max(6, -(-BYTES // size)))
    weights = [torch.randn(outputs, inputs, device="cuda").mul_(inputs**-0.5).bfloat16() for _ in range(copies)]
    found = []
    for rows in ROWS:
        x = torch.randn(rows, inputs, device="cuda").bfloat16()

        def library(weight: torch.Tensor, x: torch.Tensor = x) -> torch.Tensor:
            y = F.linear(x, weight)
            return fused.silu_mul(y) if gated else y

        def own(weight: torch.Tensor, x: torch.Tensor = x) -> torch.Tensor:
            if gated:
                return linear.gated_linear(x, weight, None)
            return linear.linear(x, weight, None, splits=not whole)

        def time(product: Callable[[torch.Tensor], object]) -> float:
            return chain_microseconds([lambda weight=weight: product(weight) for weight in weights])  # type: ignore[misc] # a lambda's default

        chosen = linear.ours(rows=rows, outputs=outputs // 2 if gated else outputs, gated=gated)
        cublas = time(library)
        row = Row(f"{name} {rows} rows", "chosen: " + ("ours" if chosen else "cuBLAS"), time(own) if chosen else cublas,
                  "µs", "lower", "cuBLAS", cublas, size / bandwidth * 1e6)  # fmt: skip
        found.append(row)
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU here")
    bandwidth = copy_bandwidth()
    rows = [row for name in WEIGHTS for row in measure(name, bandwidth)]
    command = "python -m evaluation.benchmarks.linear"
    device = torch.cuda.get_device_name()
    report.write("linear", options.device, device, rows, options.out, ("torch", "triton"), command, options.commit)
    print(report.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
