"""What must hold during the soak: of each request, of the engine's pools, of memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from statistics import median

import numpy as np
import psutil
import torch

from engines.native.draft import Drawn
from engines.native.request import Finish, SamplingParams
from engines.native.runner import ModelRunner
from engines.native.scheduler import Scheduler
from engines.native.step import StepPlan
from evaluation.benchmarks.report import Row
from evaluation.benchmarks.soak_traffic import Asked

SAMPLE_S = 0.2
"""Seconds between two samples of memory."""
GROWTH = 2.0
"""% by which flat memory may differ."""


class Ledger:
    """living: requests that have not ended. problems: what was wrong, a sentence each."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self.living: dict[int, Asked] = {}
        self.ended: Counter[Finish] = Counter()
        self.checks = self.idles = 0
        self.problems: list[str] = []

    def said(self, drawn: Drawn) -> None:
        for number, token in zip(drawn.ids.tolist(), drawn.tokens.tolist(), strict=True):
            asked = self.living.get(number)
            if asked is None:
                self.problems.append(f"request {number} says {token}, but it has ended")
                continue
            asked.said.append(token)
            if len(asked.said) > asked.most or not 0 <= token < self._vocab:
                self.problems.append(f"request {number}: token {token} is its {len(asked.said)}th of {asked.most}")

    def collect(self, scheduler: Scheduler) -> list[Asked]:
        """Those that have ended since."""
        found = []
        for ending in scheduler.endings:
            asked = self.living.pop(ending.id, None)
            if asked is None:
                self.problems.append(f"request {ending.id} ends once more, or was never asked: {ending}")
                continue
            found.append(asked)
            self.ended[ending.finish] += 1
            if not may_end(asked, ending.finish):
                said = f"{len(asked.said)} of {asked.most} tokens, the last {asked.said[-1:]}"
                self.problems.append(f"request {ending.id} can't end so: {ending}, {said}, {asked.request.params}")
        scheduler.started, scheduler.endings = [], []
        return found

    def check(self, scheduler: Scheduler, tokens: int = 0) -> None:
        """tokens: of the newest step."""
        self.checks += 1
        self.problems += scheduler.check()
        if tokens > (most := scheduler.config.max_batched_tokens):
            self.problems.append(f"a step computes {tokens} tokens; {most} are its budget")

    def idle(self, scheduler: Scheduler) -> None:
        """Nothing is asked: all blocks are free or cached, and no row is left."""
        self.idles += 1
        self.check(scheduler)
        left = {
            "blocks of the pool": scheduler.pool.used,
            "blocks of the host": scheduler.host.used,
            "rows": len(scheduler.running) + int(np.count_nonzero(scheduler.table.alive)),
            "places in the queue": len(scheduler.waiting),
            "requests that never ended": len(self.living),
        }
        self.problems += [f"idle, and {count} {name} are left" for name, count in left.items() if count]


def may_end(asked: Asked, finish: Finish) -> bool:
    params, said = asked.request.params, asked.said
    if finish in asked.allowed:
        return True
    if finish is Finish.STOP:
        stopped = bool(said) and said[-1] in params.stop_token_ids and len(said) >= params.min_tokens
        return stopped or params.grammar is not None
    return finish is Finish.LENGTH and len(said) == asked.most


@torch.inference_mode()
def every_size(runner: ModelRunner) -> None:
    """A pass of each number of tokens. oneDNN keeps what it compiles for one, half a MiB per shape of a product, the
    newest 1,024; rare sizes would come throughout the run. A last layer computes what is sampled and what is scored, so
    that it can have more. As `warm_up`, they write to the null block in row 0."""
    for count in range(1, runner.sizes.max_batched_tokens + runner.sizes.max_num_seqs + 1):
        runner.add(0, [0] * count, SamplingParams(temperature=0), count)
        row, start, many = np.array([[0], [0], [count]], np.int32)
        runner.launch(StepPlan(row, start, many, sample=np.array([True]))).wait()
        runner.model.logits(torch.zeros(count, runner.config.hidden, device=runner.device))


class Memory:
    """Of this process, and what torch has allocated on the GPU. Bytes."""

    def __init__(self, device: torch.device) -> None:
        self._process, self._device, self._last = psutil.Process(), device, 0.0
        self.samples: dict[str, list[int]] = {name: [] for name in ("host", "GPU")[: 1 + (device.type == "cuda")]}
        self.sample()

    def sample(self) -> None:
        """Where it is time."""
        if time.monotonic() - self._last < SAMPLE_S:
            return
        self._last = time.monotonic()
        self.samples["host"].append(self._process.memory_info().rss)
        if "GPU" in self.samples:
            self.samples["GPU"].append(torch.cuda.memory_allocated(self._device))

    def rows(self, case: str, judged: bool) -> list[Row]:
        """How much it has grown. judged: that has a target; no engine's first seconds are flat."""
        found = []
        for name, samples in self.samples.items():
            before, after = fifths(samples)
            print(f"memory of the {name}: {before:.1f} MiB in the second fifth, {after:.1f} MiB in the last")
            grown, metric = (after / before - 1) * 100, f"{name} memory, {before:.0f} → {after:.0f} MiB, growth"
            found.append(Row(case, metric, grown, "%", "lower", target=GROWTH if judged else None))
        return found


def fifths(samples: Sequence[int]) -> tuple[float, float]:
    """Medians of the second fifth and the last, MiB."""
    part = max(1, len(samples) // 5)
    return median(samples[part : 2 * part] or samples) / 2**20, median(samples[-part:]) / 2**20
