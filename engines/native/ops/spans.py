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
    longest. prompt: tokens of each row if all have as many and nothing before them, else 0."""

    rows: slice
    tokens: slice
    max_query: int
    prompt: int = 0


def spans_of(start: Int32, count: Int32) -> list[Span]:
    """start, count: int32 [n], of each row the tokens before the pass and in it. Decodes, one token each, come first;
    a chunk of one token behind longer ones stays with its neighbours."""
    first = int((count > 1).argmax()) if (count > 1).any() else len(count)
    kind = np.where((start == 0) & (count >= LEAST_PROMPT), count, -1)
    kind[:first] = 0
    edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(count)]
    ends = np.concatenate([[0], np.cumsum(count)])
    return [
        Span(
            rows=slice(a, b),
            tokens=slice(int(ends[a]), int(ends[b])),
            max_query=int(count[a:b].max()),
            prompt=max(int(kind[a]), 0),
        )
        for a, b in pairwise(edges)
    ]
