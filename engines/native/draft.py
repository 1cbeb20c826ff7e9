"""A step on its way from a draft, while the scheduler decides, to arrays, when it is launched, to drawn tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engines.native.request import Request
from engines.native.step import Drafts, Int32, StepPlan


@dataclass(slots=True)
class Step:
    """A launched step. Before the pass the runner copies the blocks of `swap_out` to the host, takes `added` into rows,
    copies the blocks of `swap_in` from the host, and those of `copies` on the device, in this order."""

    number: int
    plan: StepPlan
    added: list[Request]
    copies: list[tuple[int, int]]  # (source, destination)
    swap_in: list[tuple[int, int]]  # (host block, block)
    swap_out: list[tuple[int, int]] = field(default_factory=list)  # (block, host block)
    leaving: list[Request] = field(default_factory=list)  # whose blocks `swap_out` copies


@dataclass(slots=True)
class Drawn:
    """The tokens of one step that go to clients, each row's in their order. positions: int64 [k], indices into the
    output's log-probabilities: the step's rows, or their tokens where it verified. sources: int8 [k], whose guess a
    token was, −1 = nobody's; None where the step had no drafts."""

    ids: NDArray[np.int64]  # [k], request ids
    tokens: Int32  # [k]
    positions: NDArray[np.int64]
    sources: NDArray[np.int8] | None = None


@dataclass(slots=True)
class Draft:
    """What the scheduler has decided so far. A request that is preempted while planning loses its row (row −1), and
    so falls out of every list here at launch."""

    budget: int  # tokens still free in this step
    decodes: Int32  # rows with one token to compute
    drafts: Drafts | None = None  # of `decodes`
    node_masks: dict[int, Int32] = field(default_factory=dict)  # by row with a grammar: [1 + nodes, words]
    chunks: list[tuple[Request, int]] = field(default_factory=list)
    new_blocks: list[tuple[Request, int, list[int]]] = field(default_factory=list)
    added: list[Request] = field(default_factory=list)
    copies: list[tuple[Request, int, int]] = field(default_factory=list)
    swap_in: list[tuple[Request, list[tuple[int, int]]]] = field(default_factory=list)
    preempted: bool = False

    def drop(self, victim: Request) -> None:
        """Take a running request out, and its tokens back into the budget. Before it loses its row."""
        self.preempted = True
        assert self.drafts is None  # nobody loses a row for guesses, and they come last
        kept = self.decodes[self.decodes != victim.row]
        self.budget += len(self.decodes) - len(kept)
        self.budget += sum(count for request, count in self.chunks if request is victim)
        self.decodes = kept

    def launch(self, number: int, num_computed: Int32, num_tokens: Int32) -> Step | None:
        """The arrays of step `number`, or None if it is empty. The columns are those of the row table."""
        chunks = [(request.row, count) for request, count in self.chunks if request.row >= 0]
        rows = np.concatenate((self.decodes, np.array([row for row, _ in chunks], np.int32)))
        if not len(rows):
            return None
        count = np.ones(len(rows), np.int32)
        count[len(self.decodes) :] = [count for _, count in chunks]
        start = num_computed[rows]
        blocks = [(request.row, index, ids) for request, index, ids in self.new_blocks if request.row >= 0]
        plan = StepPlan(rows, start, count, sample=start + count == num_tokens[rows], new_blocks=blocks)
        if self.drafts is not None:
            plan.drafts = self.drafts
            plan.count[: len(self.decodes)] += self.drafts.nodes
        copies = [(source, to) for request, source, to in self.copies if request.row >= 0]
        swap_in = [pair for request, pairs in self.swap_in if request.row >= 0 for pair in pairs]
        return Step(number, plan, [request for request in self.added if request.row >= 0], copies, swap_in)
