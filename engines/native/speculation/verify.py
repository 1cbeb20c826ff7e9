"""Which guesses hold. A token is drawn behind every node as if all before it had been said; from the row's last token
on, the child that equals what was drawn is said. So what is said is what would have been said without guesses, greedy
or by chance: the noise of a draw depends on seed and position alone.

The keys and values of the nodes lie one after the other behind the row's last token; those of the path that held are
moved to the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.quantized_kv import Pool, planes
from engines.native.speculation.tree import ancestors
from engines.native.step import Drafts, Int32, StepOutput, StepPlan, Verified


@dataclass(frozen=True, slots=True)
class Lines:
    """Where a pass draws: behind each token of a row with drafts, behind the last of another that samples. index: int64
    [m], of the pass's tokens; place: int32 [m], its batch position; node: int32 [m], 0 = the row's last token; rows,
    positions: int32 [m], whose token is drawn, and its index in the sequence."""

    index: NDArray[np.int64]
    place: Int32
    node: Int32
    rows: Int32
    positions: Int32


def lines_of(plan: StepPlan, ends: Int32, depths: Int32) -> Lines:
    """ends: int32 [n + 1], cumulative counts; depths: int32 [d, 1 + w], of each node under its row's last token."""
    drafts = plan.drafts
    assert drafts is not None
    own = np.zeros(len(plan.rows), np.int32)
    own[: len(drafts.nodes)] = drafts.nodes
    each = np.where(plan.sample, own + 1, 0)
    place = np.repeat(np.arange(len(each), dtype=np.int32), each)
    node = (np.arange(len(place)) - np.repeat(np.cumsum(each) - each, each)).astype(np.int32)
    first = ends[1:] - 1 - own
    deep = np.zeros(len(place), np.int32)
    tried = place < len(drafts.nodes)
    deep[tried] = depths[place[tried], node[tried]]
    positions = (plan.start + plan.count - own)[place] + deep
    return Lines((first[place] + node).astype(np.int64), place, node, plan.rows[place], positions)


def depths_of(drafts: Drafts) -> Int32:
    """int32 [d, 1 + w]: 0 of the root, then each node's; of nodes that are none, whatever."""
    if drafts.chains:
        return np.tile(np.arange(drafts.width + 1, dtype=np.int32), (len(drafts.nodes), 1))
    depth = np.zeros((len(drafts.nodes), drafts.width + 1), np.int32)
    lines = np.arange(len(depth))
    for node in range(drafts.width):
        depth[:, node + 1] = depth[lines, drafts.parents[:, node]] + 1
    return depth


def ancestor_words(plan: StepPlan, ends: Int32) -> Int32 | None:
    """int32 [t], `Batch.ancestors`; None where no row has a fork."""
    drafts = plan.drafts
    assert drafts is not None
    if drafts.chains:
        return None
    words = np.zeros(int(ends[-1]), np.int32)
    for row, nodes in enumerate(drafts.nodes.tolist()):
        words[ends[row] : ends[row + 1]] = ancestors(drafts.parents[row, :nodes])
    return words


def accept(plan: StepPlan, lines: Lines, drawn: Int32) -> tuple[Verified, Int32]:
    """drawn: int32 [m], a token for each line → what is said, and int32 [d, 1 + w], which nodes are said one after the
    other: node numbers ≥ 1 along the path, 0 behind its end."""
    drafts = plan.drafts
    assert drafts is not None
    tried, width = len(drafts.nodes), drafts.width
    table = np.full((len(plan.rows), width + 1), -1, np.int32)
    table[lines.place, lines.node] = drawn
    tokens = np.full((len(plan.rows), width + 1), -1, np.int32)
    counts = plan.sample.astype(np.int32)
    tokens[:, 0] = table[:, 0]
    paths = np.zeros((tried, width + 1), np.int32)
    at = np.zeros(tried, np.int32)  # the node that each row has come to
    everyone = np.arange(tried)
    going = drafts.nodes > 0
    for node in range(1, width + 1):  # parents come first, so one pass over the nodes walks every path
        here = going & (node <= drafts.nodes) & (drafts.parents[:, node - 1] == at)
        here &= drafts.tokens[:, node - 1] == table[everyone, at]
        if not here.any():
            continue
        rows = np.flatnonzero(here)
        paths[rows, counts[rows] - 1] = node
        at[rows] = node
        tokens[rows, counts[rows]] = table[rows, node]
        counts[rows] += 1
    return Verified(tokens, counts), paths


def arrange(output: StepOutput, paths: Int32, width: int) -> None:
    """Log-probabilities by node become those of the tokens said, in their order. width: nodes and root of a row."""
    if not output.top:
        return
    logprobs, top = output.logprobs.copy(), dict(output.top)
    for row, path in enumerate(paths.tolist()):
        for place, node in enumerate(path):
            if node and node != place + 1:
                output.logprobs[row * width + place + 1] = logprobs[row * width + node]
                if row * width + node in top:
                    output.top[row * width + place + 1] = top[row * width + node]


def moves(plan: StepPlan, paths: Int32) -> list[tuple[int, int, int]]:
    """(row, index from, index to) of the tokens whose keys and values are not where the path that held wants them; in
    an order in which nothing is overwritten before it has moved, since no token moves back."""
    found = []
    for place, node in zip(*np.nonzero(paths), strict=True):
        if (source := int(paths[place, node])) != node + 1:
            start = int(plan.start[place])
            found.append((int(plan.rows[place]), start + source, start + int(node) + 1))
    return found


def move(pools: Sequence[tuple[Pool, Pool]], block_tables: torch.Tensor, block_size: int, pairs: torch.Tensor) -> None:
    """Keys and values of all layers: those of tokens pairs[1] of rows pairs[0] to where tokens pairs[2] are, int64
    [3, k]. All are read before any is written."""
    rows, source, target = pairs
    from_block, to_block = (block_tables[rows, at // block_size].long() for at in (source, target))
    for layer in pools:
        for plane in planes(*layer):
            plane[to_block, :, target % block_size] = plane[from_block, :, source % block_size]
