"""Where one decode step of the offline engine spends its time: kernels, and the gaps between them.

Wall times are taken without the profiler, kernel times in a second run with it (it slows the host, not the kernels).
GPU busy is the time in which at least one kernel or copy runs; host gap is the rest of the step.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from engines.native.config import EngineConfig
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.step import Pending, StepPlan
from evaluation.benchmarks.report import Row

BATCHES = (1, 64, 256)
INPUTS = 128  # tokens of a prompt
OUTPUTS = 64
FIRST, STEPS = 20, 8  # decode steps under the profiler
TOP = 12


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, copy or fill on the GPU; start and end in µs."""

    name: str
    start: float
    end: float

    @property
    def kernel(self) -> bool:
        return not self.name.startswith(("Memcpy", "Memset"))


class WatchedRunner(ModelRunner):
    """Notes when each decode step began and ended on the host, and profiles some of them."""

    def __init__(self, runner: ModelRunner, profiler: profile | None) -> None:
        super().__init__(runner.config, runner.sizes, runner.model, runner.device)
        self.stamps: list[tuple[float, float]] = []  # of decode steps; s
        self._profiler = profiler

    def launch(self, plan: StepPlan) -> Pending:
        if int(plan.count.max()) > 1:
            return super().launch(plan)
        if self._profiler is not None and len(self.stamps) == FIRST:
            self._profiler.start()
        begun = time.perf_counter()
        pending = super().launch(plan)
        self.stamps.append((begun, time.perf_counter()))
        if self._profiler is not None and len(self.stamps) == FIRST + STEPS:
            torch.cuda.synchronize()
            self._profiler.stop()
        return pending


def run(name: str, config: EngineConfig, runner: ModelRunner, prompts: list[list[int]]) -> list[Row]:
    """Rows of one decode step with all `prompts` running. Raises RuntimeError where the profiler sees no GPU work."""
    _watch(config, runner, prompts, None)  # compiles
    stamps = _watch(config, runner, prompts, None)[FIRST:-2]
    wall = median(after[0] - before[0] for before, after in pairwise(stamps)) * 1e3
    launch = median(ended - begun for begun, ended in stamps) * 1e3
    profiler = profile(activities=[ProfilerActivity.CUDA])
    _watch(config, runner, prompts, profiler)
    works = [
        Work(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events() or []  # type: ignore[no-untyped-call]
        if event.device_type.name == "CUDA" and not event.name.startswith("ProfilerStep")
    ]
    if not any(work.kernel for work in works):
        raise RuntimeError("torch.profiler saw no kernel: CUPTI does not work on this machine")
    return rows_of(f"{name} decode step, batch {len(prompts)}", works, wall, launch)


def rows_of(case: str, works: list[Work], wall: float, launch: float) -> list[Row]:
    """`works` of STEPS steps. wall: ms from step to step; launch: ms of it that the host takes to launch."""
    busy = busy_time(works) / STEPS / 1e3
    launches = sum(work.kernel for work in works) / STEPS
    rows = [
        Row(case, "wall", wall, "ms", "lower"),
        Row(case, "GPU busy", busy, "ms", "lower"),
        Row(case, "host gap: wall − GPU busy", wall - busy, "ms", "lower"),
        Row(case, "launch on the host", launch, "ms", "lower"),
        Row(case, "kernels", launches, "per step", "lower"),
        Row(case, "copies and fills", len(works) / STEPS - launches, "per step", "lower"),
    ]
    times: dict[str, list[float]] = defaultdict(list)
    for work in works:
        times[work.name].append(work.end - work.start)
    for name, each in sorted(times.items(), key=lambda item: -sum(item[1]))[:TOP]:
        rows.append(Row(case, f"{len(each) / STEPS:g} × {name[:72]}", sum(each) / STEPS, "µs per step", "lower"))
    return rows


def busy_time(works: Iterable[Work]) -> float:
    """µs in which at least one of `works` runs."""
    busy, until = 0.0, float("-inf")
    for work in sorted(works, key=lambda work: work.start):
        busy += max(0.0, work.end - max(work.start, until))
        until = max(until, work.end)
    return busy


def _watch(
    config: EngineConfig, runner: ModelRunner, prompts: list[list[int]], profiler: profile | None
) -> list[tuple[float, float]]:
    watched = WatchedRunner(runner, profiler)
    Offline(config, watched).generate(prompts, SamplingParams(temperature=0, max_tokens=OUTPUTS))
    return watched.stamps
