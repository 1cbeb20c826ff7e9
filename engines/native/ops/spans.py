"""How the rows of a pass fall apart for attention: decodes, whole prompts of one length, and chunks of prompts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engines.native.step import Int32

LEAST_PROMPT = 512
"""Tokens from which on whole prompts are kept apart: below it a launch of their own costs what it could gain."""


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows that are treated alike. rows, tokens: where they are in the pass; max_query: tokens of the
    longest. prompt: tokens of each row if all have as many and nothing before them, else 0. tree: whether words of
    `Batch.ancestors` are read, if there are any."""

    rows: slice
    tokens: slice
    max_query: int
    prompt: int = 0
    tree: bool = False


def spans_of(start: Int32, count: Int32, verified: int = 0) -> list[Span]:
    """start, count: int32 [n], of each row the tokens before the pass and in it. Rows whose guesses are verified come
    first, then decodes, one token each; a chunk of one token behind longer ones stays with its neighbours."""
    behind = count[verified:] > 1
    first = verified + (int(behind.argmax()) if behind.any() else len(behind))
    kind = np.where((start == 0) & (count >= LEAST_PROMPT), count, -1)
    kind[:verified] = -2
    kind[verified:first] = 0
    edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(count)]
    ends = np.concatenate([[0], np.cumsum(count)])
    return [
        Span(
            rows=slice(a, b),
            tokens=slice(int(ends[a]), int(ends[b])),
            max_query=int(count[a:b].max()),
            prompt=max(int(kind[a]), 0),
            tree=a < verified,
        )
        for a, b in pairwise(edges)
    ]
