"""The simulator against the native engine's own scheduler: the same requests, steps that take what a law says."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from engines.native.draft import Step as Launched
from engines.native.request import Request, SamplingParams
from engines.native.scheduler import Scheduler, SchedulerConfig
from engines.native.step import StepOutput
from evaluation.planner.roofline import Step
from evaluation.planner.simulate import Limits, Work, arrivals, simulate

LENGTH = 1024


def _cost(step: Step) -> float:
    return 0.004 + 4e-4 * step.chunk + 1e-7 * step.pairs + 6e-4 * step.rows + 1e-6 * step.keys


def _step(launched: Launched, decodes: int) -> Step:
    start, count = (each.astype(float) for each in (launched.plan.start, launched.plan.count))
    pairs = float((count * (start + count / 2))[decodes:].sum())
    return Step(decodes, float(start[:decodes].sum()), float(count[decodes:].sum()), pairs)


def _run(work: Work, limits: Limits) -> tuple[np.ndarray, np.ndarray]:
    """When each has its first and its last token, s from its arrival."""
    config = SchedulerConfig(max_num_seqs=limits.sequences, max_batched_tokens=limits.step_tokens, prefix_cache=False)
    scheduler = Scheduler(config, num_blocks=4096, block_size=limits.block, max_model_len=LENGTH)
    chooser = np.random.default_rng(0)
    first, last = np.full((2, len(work.at)), np.nan)
    flights: deque[tuple[Launched, float]] = deque()
    now = free = 0.0
    added = 0
    while added < len(work.at) or scheduler.has_work or flights:
        if not (scheduler.has_work or flights):
            now = max(now, float(work.at[added]))
        while added < len(work.at) and work.at[added] <= now + 1e-12:
            size, output = int(work.prompt[added]), int(work.output[added])
            params = SamplingParams(temperature=0, max_tokens=output)
            tokens = chooser.integers(0, 1000, size).astype(np.int32)
            scheduler.add(Request(id=added, token_ids=tokens, params=params, prompt_len=size, arrived=now))
            added += 1
        launched = scheduler.plan(now)
        if launched is not None:
            decodes = int((scheduler.table.prompt_len[launched.plan.rows] <= launched.plan.start).sum())
            free = max(now, free) + _cost(_step(launched, decodes))
            flights.append((launched, free))
        if flights and (launched is None or len(flights) >= limits.depth):
            done, now = flights.popleft()
            drawn = scheduler.commit(
                done,
                StepOutput(np.full(len(done.plan.rows), 7, np.int32), np.full(len(done.plan.rows), np.nan, np.float32)),
            )
            first[[index for index in drawn.ids if np.isnan(first[index])]] = now
            last[drawn.ids] = now
    return first - work.at, last - work.at


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("rate", "prompts"), [(4.0, (96, 97)), (9.0, (96, 97)), (3.0, (20, 900))])
def test_first_and_last_tokens_come_when_the_engine_gives_them(rate, prompts, depth):
    chooser = np.random.default_rng(3)
    count = 80
    work = Work(
        arrivals(chooser, rate, count), chooser.integers(*prompts, count) * 1.0, np.zeros(count),
        chooser.integers(30, 50, count) * 1.0,
    )  # fmt: skip
    limits = Limits(16, 512, depth=depth)
    first, last = _run(work, limits)
    found = simulate(work, limits, _cost)
    tpot = (last - first) / (work.output - 1)
    for quantile in (0.5, 0.95):
        assert np.quantile(found.ttft, quantile) == pytest.approx(np.quantile(first, quantile), rel=0.03)
        assert np.quantile(found.tpot, quantile) == pytest.approx(np.quantile(tpot, quantile), rel=0.03)
        assert np.quantile(found.e2el, quantile) == pytest.approx(np.quantile(last, quantile), rel=0.03)
