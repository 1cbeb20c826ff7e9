"""Strict mode's promise, tried out on the loaded model: the same bits alone and in company, whatever the chunks.

How a library cuts its products is a property of its build and of the processor. So before a strict engine serves, it
computes a few random prompts both ways and compares; one that can't keep the promise refuses to start.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from engines.native.config import ConfigError
from engines.native.request import SamplingParams
from engines.native.step import Int32, StepPlan

if TYPE_CHECKING:
    from engines.native.runner import ModelRunner

PROMPTS, LENGTH, STEPS, CHUNK = 4, 200, 2, 47
"""The longest reaches beyond what one product sums over (`ops.row_views.SUMMED`); each after it has half as many
tokens."""

Scores = list[float]
"""Log-probabilities of a prompt's tokens and of what was drawn after it."""


def verify(runner: ModelRunner) -> None:
    """Before the first request: rows and blocks are written over. Raises ConfigError."""
    length = min(LENGTH, runner.max_model_len - STEPS - 1, runner.sizes.max_batched_tokens // 2)
    blocks = -(-(length + STEPS) // runner.block_size)
    rows = min(PROMPTS, runner.sizes.max_num_seqs, (runner.num_blocks - 1) // blocks)
    if length < 2 or rows < 1:
        return
    chooser = np.random.default_rng(0)
    prompts = [chooser.integers(0, runner.vocab_size, max(2, length >> row)).astype(np.int32) for row in range(rows)]
    company = _scores(runner, prompts, LENGTH)
    for place in {0, rows - 1}:
        [alone] = _scores(runner, [prompts[place]], CHUNK)
        if alone != company[place]:
            greatest = max(abs(a - b) for a, b in zip(alone, company[place], strict=True))
            raise ConfigError(
                f"options.strict is true, but on this machine a prompt alone and among {rows} differ by {greatest:.1e} "
                "in a log-probability: the products of this build of torch depend on their neighbours; set it to false"
            )


def _scores(runner: ModelRunner, prompts: list[Int32], chunk: int) -> list[Scores]:
    params = SamplingParams(temperature=0, max_tokens=STEPS, logprobs=0, prompt_logprobs=0)
    free = count(1)
    held = [0] * len(prompts)
    done = [0] * len(prompts)
    scores: list[Scores] = [[] for _ in prompts]
    for row, prompt in enumerate(prompts):
        runner.add(row, prompt.tolist(), params, len(prompt))
    while rows := [row for row, prompt in enumerate(prompts) if done[row] < len(prompt) + STEPS - 1]:
        counts = [max(1, min(chunk, len(prompts[row]) - done[row])) for row in rows]
        new = []
        for row, much in zip(rows, counts, strict=True):
            need = -(-(done[row] + much) // runner.block_size)
            new.append((row, held[row], [next(free) for _ in range(need - held[row])]))
            held[row] = need
        start = np.array([done[row] for row in rows], np.int32)
        ends = start + np.array(counts, np.int32)
        draws = np.array([end >= len(prompts[row]) for row, end in zip(rows, ends, strict=True)])
        plan = StepPlan(
            np.array(rows, np.int32), start, np.array(counts, np.int32), draws, [each for each in new if each[2]]
        )
        output = runner.launch(plan).wait()
        for place, row in enumerate(rows):
            done[row] += counts[place]
            if place in output.prompt_logprobs:
                scores[row] += output.prompt_logprobs[place][1]
            if draws[place]:
                scores[row].append(float(output.logprobs[place]))
    return scores
