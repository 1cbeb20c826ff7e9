"""Tokens behind every node of a pass with drafts, with all that a request may ask of its sampling.

A row whose logits are adjusted by what it has said (penalties, DRY, bad words, …) is drawn node by node: what the next
draw counts is known only when the one before has said what was guessed. Its drafts are one chain. All other rows are
drawn at once.
"""

from __future__ import annotations

import numpy as np
import torch

from engines.native.sample.sampler import Sampler
from engines.native.speculation.verify import Lines
from engines.native.state import Rows
from engines.native.step import Int32, StepOutput, StepPlan, TokenMasks


def draw(plan: StepPlan, lines: Lines, logits: torch.Tensor, sampler: Sampler, rows: Rows) -> tuple[Int32, StepOutput]:
    """logits [m, vocab] of `lines` → int32 [m], the token behind each (−1 behind a node of an adjusted row that does
    not hold), and an output with log-probabilities where they are asked."""
    assert plan.drafts is not None
    adjusted = np.isin(lines.rows, [row for row in set(lines.rows.tolist()) if sampler.adjuster.concerns([row])])
    asked = sampler.logprobs[lines.rows]
    chosen = np.flatnonzero(asked >= 0)
    raw = logits[rows.send(chosen)] if len(chosen) else None  # a copy: the sampler may write over its lines
    tokens = np.full(len(lines.rows), -1, np.int32)
    at_once = np.flatnonzero(~adjusted)
    if len(at_once):
        tokens[at_once] = _sample(at_once, plan.masks, lines, logits, sampler, rows)
    going = np.flatnonzero(adjusted & (lines.node == 0))
    while len(going):
        tokens[going] = _sample(going, plan.masks, lines, logits, sampler, rows)
        place, node = lines.place[going], lines.node[going]
        tried = place < len(plan.drafts.nodes)
        more = np.zeros(len(going), np.bool_)
        more[tried] = node[tried] < plan.drafts.nodes[place[tried]]
        more[more] = plan.drafts.tokens[place[more], node[more]] == tokens[going[more]]
        going = going[more] + 1
    width = plan.drafts.width + 1
    output = StepOutput(np.full(len(plan.rows), -1, np.int32), np.full(len(plan.rows) * width, np.nan, np.float32))
    if raw is not None:
        drawn = rows.send(np.maximum(tokens[chosen], 0).astype(np.int64))
        found, top = sampler.score(raw, drawn, int(asked.max()))
        for line, value, (ids, values) in zip(chosen.tolist(), found, top, strict=True):
            at, count = int(lines.place[line]) * width + int(lines.node[line]), int(asked[line])
            output.logprobs[at] = value
            output.top[at] = (ids[:count], values[:count])
    return tokens, output


def _sample(
    chosen: np.ndarray[tuple[int], np.dtype[np.intp]],
    masks: TokenMasks | None,
    lines: Lines,
    logits: torch.Tensor,
    sampler: Sampler,
    rows: Rows,
) -> Int32:
    """Tokens of the lines `chosen`, int32 [k]."""
    everyone = len(chosen) == len(lines.rows)
    picked = logits if everyone else logits[rows.send(chosen)]
    own = masks if masks is None or everyone else masks.of(chosen)
    found = sampler.sample(picked, lines.rows[chosen], lines.positions[chosen], own)
    return found.cpu().numpy().astype(np.int32)
