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
    most = np.clip(table.max_total[rows] - table.num_tokens[rows] - 1, 0, max(draft.budget, 0))
    trees = speculator.guesses(rows, most.astype(np.int32), in_flight)
    if trees is None:
        return {}
    chosen = speculator.choose(trees, len(rows), draft.budget, free=not in_flight)
    for row in list(chosen):
        request = table.requests[row]
        assert request is not None
        tree = _fitting(request, chosen[row], table, pool, grow, draft)
        if constraints is not None and request.matcher is not None and len(tree):
            tree, draft.node_masks[row] = constraints.followed(request.matcher, tree)
        if len(tree):
            chosen[row] = tree
            request.drafted += len(tree)
        else:
            del chosen[row]
    if not chosen:
        return {}
    for row in rows[table.constrained[rows]].tolist():
        request = table.requests[row]
        if row not in chosen and request is not None and request.matcher is not None:
            draft.node_masks[row] = request.matcher.bits[None]
    draft.drafts = drafts_of(chosen, rows)
    return chosen


def _fitting(request: Request, tree: Tree, table: RowTable, pool: BlockPool, grow: Grow, draft: Draft) -> Tree:
    """As much of `tree` as there are places in blocks for; blocks that nobody has are taken."""
    known = int(table.num_tokens[request.row])
    room = len(request.blocks) * pool.block_size - known
    need = -(-(len(tree) - room) // pool.block_size)
    if need <= 0:
        return tree
    if need <= pool.available and grow(request, known + len(tree), draft):
        return tree
    return tree.first(room)


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
