"""Where a GPU's memory is after the engine has worked, beside the engine's own plan. No server: torch is enough.

    python -m evaluation.benchmarks.planner_memory [--shape llama8b qwen06b] [--device h200] [--out FOLDER]
    python -m evaluation.benchmarks.planner_memory --judge FILE

The first runs where the GPU is: prompts and captured decode steps of random weights, then `memory_table` of the engine.
The second puts the planner's lines beside such a file, anywhere: weights, KV cache, and the whole.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
from importlib import resources
from pathlib import Path

import torch

from engines.native import memory_table
from evaluation.benchmarks import report, shapes
from evaluation.benchmarks.engine_cases import BATCHED, LENGTH, ROWS
from evaluation.benchmarks.engine_gpu import engine_of, prompts, seconds
from evaluation.benchmarks.report import Row

MIB = 2**20
WORK = {"tiny": (2, 16, 4)}
"""Prompts, their tokens, tokens of answer; (256, 1024, 64) for the others."""
WHOLE = "whole device"


def measure(name: str) -> list[Row]:
    """MiB of each part, the engine's plan as the peer."""
    config, runner = engine_of(name)
    batch, inputs, outputs = WORK.get(name, (256, 1024, 64))
    for _ in range(2):  # graphs are captured after the first step of their kind
        seconds(config, runner, prompts(random.Random(1), batch, inputs, runner.config), outputs)
    table = memory_table.table(runner)
    rows = []
    for part in table["parts"]:
        planned = None if part["planned"] is None else part["planned"] / MIB
        rows.append(Row(f"{name} memory", part["part"], part["bytes"] / MIB, "MiB", "lower", "engine's plan", planned))
    whole, planned = table["total"] / MIB, table["planned_total"] / MIB
    rows.append(Row(f"{name} memory", WHOLE, whole, "MiB", "lower", "engine's plan", planned))
    del runner
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return rows


def judge(path: Path) -> list[Row]:
    """The planner's figure beside each measured one. The KV cache is as large as the engine made it."""
    from evaluation.planner import hardware, memory, schemes
    from evaluation.planner.model_spec import from_config

    body = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, dict[str, float]] = {}
    for row in body["rows"]:
        found.setdefault(row["case"].removesuffix(" memory"), {})[row["metric"]] = row["value"]
    rows = []
    gpu, scheme = hardware.gpu(body["device"]), schemes.scheme("bfloat16")
    for name, measured in found.items():
        config = json.loads(resources.files(shapes).joinpath(f"{name}.json").read_text(encoding="utf-8"))
        engine = memory.native(gpu, scheme, max_length=LENGTH, sequences=ROWS, step_tokens=BATCHED)
        lines = memory.fixed_lines(from_config(config, name), scheme, engine, gpu)
        weights = next(line.bytes for line in lines if line.part == "weights") / MIB
        whole = memory.total(lines) / MIB + measured["kv_cache"]
        for metric, planned in (("weights", weights), (WHOLE, whole)):
            away = abs(planned / measured[metric] - 1) * 100
            rows.append(Row(f"{name} memory", metric, measured[metric], "MiB", "lower", "planner", planned))
            rows.append(Row(f"{name} memory", f"{metric}, residual", away, "%", "lower", target=5.0))
    return rows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=["llama8b", "qwen06b", "tiny"], default=["llama8b", "qwen06b"])
    parser.add_argument("--judge", type=Path, help="a file that the first form wrote")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    if options.judge:
        rows = judge(options.judge)
        print(report.table(rows))
        return 1 if any(row.ok is False for row in rows) else 0
    if options.shape != ["tiny"] and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; only --shape tiny runs on a CPU")
    rows = [row for name in options.shape for row in measure(name)]
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    report.write("planner_memory", options.device, name, rows, options.out, ("torch", "triton"), commit=options.commit)
    print(report.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
