"""The engine's Triton kernels on a GPU: right on fresh random inputs, and how near they come to what the device allows.

`python -m evaluation.benchmarks.kernels_gpu [--out FOLDER] [--only checks|times]`. Under TRITON_INTERPRET=1 on a CPU
only the checks run, at tiny shapes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from evaluation.benchmarks import kernel_checks, kernel_times, report
from evaluation.benchmarks.gpu_timing import copy_bandwidth, matmul_rate


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--only", choices=("checks", "times"))
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[report.Row] = []
    if options.only != "times":
        for part in kernel_checks.run(device):
            print(report.table(part), flush=True)
            rows += part
    if device.type == "cuda" and options.only != "checks":
        bandwidth, rate = copy_bandwidth(), matmul_rate()
        rows.append(report.Row("copy 2 GiB", "read + written", bandwidth / 1e9, "GB/s", "higher"))
        rows.append(report.Row("bf16 8192³", "matrix product", rate / 1e12, "TFLOP/s", "higher"))
        rows += kernel_times.run(bandwidth, rate)
        print(report.table([row for row in rows if row.metric not in kernel_checks.METRICS]), flush=True)
    if device.type == "cuda":
        name = torch.cuda.get_device_name()
        path = report.write("kernels_gpu", options.device, name, rows, options.out, ("torch", "triton"))
        print(path)
    return 1 if any(row.metric in kernel_checks.METRICS and not row.ok for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
