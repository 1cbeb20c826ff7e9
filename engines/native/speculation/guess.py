"""Drafts for the rows that decode in a pass, out of what it leaves: of the token budget, and of free blocks, without
taking any from others. Grammars are asked about each guess before it is tried."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engines.native.blocks import BlockPool
from engines.native.draft import Draft
from engines.native.grammar.constraints import Constraints
from engines.native.request import Request
from engines.native.rows import RowTable
from engines.native.speculation.speculator import Speculator, drafts_of
from engines.native.speculation.tree import Tree
from engines.native.step import Int32, StepPlan, TokenMasks

Grow = Callable[[Request, int, Draft], bool]
"""`Scheduler._grow`."""


def guess(
    draft: Draft,
    speculator: Speculator,
    table: RowTable,
    pool: BlockPool,
    grow: Grow,
    constraints: Constraints | None,
    in_flight: bool,
) -> dict[int, Tree]:
    """What `draft` tries from now on, by row. Nothing while passes are on their way, or beside prompts: these come
    first."""
    rows = draft.decodes
    if draft.chunks:
        speculator.pause()
        return {}
    left = np.maximum(table.max_total[rows] - table.num_tokens[rows] - 1, 0)
    trees = speculator.guesses(rows, np.minimum(left, max(draft.budget, 0)), in_flight)
    if trees is None:
        return {}
    chosen = speculator.choose(trees, len(rows), draft.budget, free=not in_flight)
    _fit(chosen, table, pool, grow, draft)
    if constraints is not None and table.constrained[rows].any():
        _follow(chosen, table, constraints, draft)
    for row, tree in chosen.items():
        request = table.requests[row]
        assert request is not None
        request.drafted += len(tree.tokens)
    if not chosen:
        return {}
    draft.drafts = drafts_of(chosen, rows)
    return chosen


def _fit(chosen: dict[int, Tree], table: RowTable, pool: BlockPool, grow: Grow, draft: Draft) -> None:
    """Leaves as much of each tree as there are places in blocks for; blocks that nobody has are taken."""
    rooms = table.num_blocks[draft.decodes] * pool.block_size - table.num_tokens[draft.decodes]
    for row, room in zip(draft.decodes.tolist(), rooms.tolist(), strict=True):
        tree = chosen.get(row)
        if tree is None or (count := len(tree.tokens)) <= room:
            continue
        request = table.requests[row]
        assert request is not None
        need = -(-(count - room) // pool.block_size)
        if need <= pool.available and grow(request, int(table.num_tokens[row]) + count, draft):
            continue
        if room:
            chosen[row] = tree.first(room)
        else:
            del chosen[row]


def _follow(chosen: dict[int, Tree], table: RowTable, constraints: Constraints, draft: Draft) -> None:
    """Leaves what grammars allow, and notes what they do behind each node of all rows that decode."""
    for row in draft.decodes[table.constrained[draft.decodes]].tolist():
        request = table.requests[row]
        if request is None or request.matcher is None:
            continue
        draft.node_masks[row] = request.matcher.bits[None]
        if row in chosen:
            tree, draft.node_masks[row] = constraints.followed(request.matcher, chosen[row])
            if len(tree):
                chosen[row] = tree
            else:
                del chosen[row]


def masks_of_drafts(plan: StepPlan, masks: dict[int, Int32], table: RowTable) -> TokenMasks | None:
    """masks: of rows with a grammar, int32 [1 + nodes, words]. For the tokens that the pass draws, in their order."""
    if not masks:
        return None
    assert plan.drafts is not None
    own = np.zeros(len(plan.rows), np.int64)
    own[: len(plan.drafts.nodes)] = plan.drafts.nodes
    each = np.where(plan.sample, own + 1, 0)
    first = np.cumsum(each) - each
    found = [(int(first[place]), masks[row]) for place, row in enumerate(plan.rows.tolist()) if row in masks]
    places = np.concatenate([np.arange(at, at + len(bits)) for at, bits in found])
    return TokenMasks(places, np.concatenate([bits for _, bits in found]))
