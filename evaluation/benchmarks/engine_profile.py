"""`engines.native.profile` as rows of a benchmark: one decode step's kernels and the gaps between them."""

from __future__ import annotations

from engines.native import profile
from engines.native.config import EngineConfig
from engines.native.profile import STEPS, Profile
from engines.native.runner import ModelRunner
from evaluation.benchmarks.report import Row

BATCHES = (1, 64, 256)
INPUTS = 128  # tokens of a prompt
TOP = 12


def run(name: str, config: EngineConfig, runner: ModelRunner, prompts: list[list[int]]) -> list[Row]:
    """Rows of one decode step with all `prompts` running. Raises RuntimeError where the profiler sees no GPU work."""
    return rows_of(f"{name} decode step, batch {len(prompts)}", profile.run(config, runner, prompts)[0])


def rows_of(case: str, step: Profile) -> list[Row]:
    launches = sum(work.kernel for work in step.works) / STEPS
    rows = [
        Row(case, "wall", step.wall, "ms", "lower"),
        Row(case, "GPU busy", step.busy, "ms", "lower"),
        Row(case, "host gap: wall − GPU busy", step.wall - step.busy, "ms", "lower"),
        Row(case, "launch on the host", step.launch, "ms", "lower"),
        Row(case, "kernels", launches, "per step", "lower"),
        Row(case, "copies and fills", len(step.works) / STEPS - launches, "per step", "lower"),
    ]
    for name, count, spent in step.by_name()[:TOP]:
        rows.append(Row(case, f"{count:g} × {name[:72]}", spent, "µs per step", "lower"))
    return rows
