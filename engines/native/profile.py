"""Where one decode step spends its time: kernels (on a CPU: operations), the gaps between them, and the host's part.

    python -m engines.native.profile MODEL [--batch 8] [--input 128] [--device cuda] [--trace step.json]

MODEL: a GGUF file, or a folder with safetensors, config.json and tokenizer.json. Wall times are taken without the
profiler, the others in a second run with it (it slows the host, not the kernels). docs/performance.md says how to read
the table. Where it can be told which kernel does what (`engines.native.roofline`), each has its share of the roofline.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from engines.native import roofline
from engines.native.config import EngineConfig
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.step import Pending, StepPlan

FIRST, STEPS = 20, 8  # decode steps under the profiler
OUTPUTS = FIRST + STEPS + 36
TOP = 16


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, copy or fill on the GPU, or an operation on the CPU; start and end in µs."""

    name: str
    start: float
    end: float

    @property
    def kernel(self) -> bool:
        return not self.name.startswith(("Memcpy", "Memset"))


@dataclass(frozen=True, slots=True)
class Profile:
    """One decode step, as the median or mean of several; ms. works: of STEPS steps, on the device."""

    wall: float  # from step to step
    launch: float  # of it, until the host has launched the step
    works: list[Work]

    @property
    def busy(self) -> float:
        """ms in which at least one kernel or copy runs."""
        return busy_time(self.works) / STEPS / 1e3

    def by_name(self) -> list[tuple[str, float, float]]:
        """(name, how often per step, µs per step), the longest first."""
        times: dict[str, list[float]] = defaultdict(list)
        for work in self.works:
            times[work.name].append(work.end - work.start)
        rows = [(name, len(each) / STEPS, sum(each) / STEPS) for name, each in times.items()]
        return sorted(rows, key=lambda row: -row[2])


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
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self._profiler.stop()
        return pending


def run(config: EngineConfig, runner: ModelRunner, prompts: list[list[int]]) -> tuple[Profile, profile]:
    """A decode step with all `prompts` running, and torch's profiler, for a trace. Raises RuntimeError where the
    profiler sees no work."""
    _watch(config, runner, prompts, None)  # compiles
    stamps = _watch(config, runner, prompts, None)[FIRST:-2]
    wall = median(after[0] - before[0] for before, after in pairwise(stamps)) * 1e3
    launch = median(ended - begun for begun, ended in stamps) * 1e3
    gpu = runner.device.type == "cuda"
    profiler = profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU])
    _watch(config, runner, prompts, profiler)
    works = [
        Work(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events() or []  # type: ignore[no-untyped-call] # torch's
        if event.device_type.name == ("CUDA" if gpu else "CPU")
        and not event.name.startswith("ProfilerStep")
        and (gpu or event.cpu_parent is None)
    ]
    if not any(work.kernel for work in works):
        raise RuntimeError("torch.profiler saw no work: on a GPU, CUPTI does not work on this machine")
    return Profile(wall, launch, works), profiler


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


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file, or a folder with safetensors")
    parser.add_argument("--batch", type=int, default=1, help="requests that run at once")
    parser.add_argument("--input", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--trace", type=Path, help="write a timeline for https://ui.perfetto.dev")
    options = parser.parse_args(arguments)
    folder = options.model.is_dir()
    files = sorted(options.model.iterdir()) if folder else [options.model]
    config = EngineConfig(
        speculation="off",
        format="safetensors" if folder else "gguf", paths={file.name: str(file) for file in files},
        device=options.device, dtype=options.dtype, max_model_len=options.input + OUTPUTS,
        max_num_seqs=options.batch, prefix_cache=False,
    )  # fmt: skip
    runner = Offline(config).runner
    chooser = random.Random(1)
    prompts = [[chooser.randrange(runner.vocab_size) for _ in range(options.input)] for _ in range(options.batch)]
    step, profiler = run(config, runner, prompts)
    print(report(step, runner, reached_by(step, runner, options.batch, options.input)))
    if options.trace:
        profiler.export_chrome_trace(str(options.trace))
        print(f"timeline: {options.trace}")
    return 0


@dataclass(frozen=True, slots=True)
class Rooflines:
    limits: roofline.Limits
    parts: list[roofline.Reached]  # of the model
    kernels: dict[str, roofline.Reached]


def reached_by(step: Profile, runner: ModelRunner, rows: int, inputs: int) -> Rooflines:
    """How near the device's limits the step came, with `rows` requests of `inputs` tokens each at its begin."""
    limits = roofline.measure(runner.device, runner.sizes.dtype)
    needs = roofline.products(runner.config, runner.sizes.dtype, rows)
    attending = None
    if runner.config.latent is None:
        attending = roofline.attention(runner.config, runner.sizes.dtype, rows, inputs + FIRST + STEPS / 2)
    parts, kernels = roofline.reached(step.works, STEPS, needs, attending, limits)
    return Rooflines(limits, parts, {each.name: each for each in kernels})


def report(step: Profile, runner: ModelRunner, rooflines: Rooflines | None = None) -> str:
    """The table of one step, as text."""
    weights = runner.sizes.plan.weights
    busy = "GPU busy" if runner.device.type == "cuda" else "in operations"
    known = rooflines.kernels if rooflines else {}
    lines = [
        f"wall                {step.wall:9.3f} ms a step",
        f"{busy:19} {step.busy:9.3f} ms",
        f"host gap            {max(0.0, step.wall - step.busy):9.3f} ms",
        f"launch on the host  {step.launch:9.3f} ms",
        f"weights read at     {weights / step.wall / 1e6:9.1f} GB/s ({weights / 2**20:,.0f} MiB once a step)",
        f"{'per step':>9} {'µs':>9} {'share':>6} {'roofline':>8}  name",
    ]
    lines += [
        f"{count:9g} {spent:9.1f} {spent / step.wall / 10:5.1f}% {_share(known.get(name)):>8}  {name[:90]}"
        for name, count, spent in step.by_name()[:TOP]
    ]
    return "\n".join([*lines, *(_by_part(rooflines) if rooflines else [])])


def _share(reached: roofline.Reached | None) -> str:
    return f"{reached.share:.0%}" if reached else "–"


def _by_part(rooflines: Rooflines) -> list[str]:
    bandwidth, flops = rooflines.limits.bandwidth / 1e9, rooflines.limits.flops / 1e12
    lines = [
        "",
        f"measured here       {bandwidth:9.1f} GB/s in a copy, {flops:.3g} TFLOP/s in a product",
        f"{'part':>9} {'µs':>9} {'least':>8} {'roofline':>8} {'GB/s':>8}",
    ]
    if not rooflines.parts:
        return [*lines, "          which kernel does which product can't be told for this model on this device"]
    return lines + [
        f"{each.name:>9} {each.spent:9.1f} {each.least:8.1f} {_share(each):>8} {each.gigabytes:8.1f}"
        for each in rooflines.parts
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
