"""What a pass has said goes into the row table: tokens, stops, grammars. The tokens of all rows at once; only grammars
are shown them one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engines.native.draft import Drawn
from engines.native.grammar.constraints import Constraints
from engines.native.request import Request
from engines.native.rows import RowTable
from engines.native.step import Int32, StepOutput, StepPlan


@dataclass(slots=True)
class Said:
    """drawn: for clients. kept: int32 [n], tokens that each batch position has said, up to its end. ended: (row,
    whether it was a stop, else its length); broken: requests that can't go on in their grammar."""

    drawn: Drawn
    kept: Int32
    ended: list[tuple[int, bool]]
    broken: list[Request]


@dataclass(slots=True)
class _Words:
    """The tokens of a pass, each row's in their order. place, column: int64 [k], batch position, and how many of its
    row's come before; rows, tokens: int32 [k]; stopped, over: bool [k], whether it is a stop, and the last of its
    answer. broken: requests that can't go on after one."""

    place: NDArray[np.int64]
    column: NDArray[np.int64]
    rows: Int32
    tokens: Int32
    stopped: NDArray[np.bool_]
    over: NDArray[np.bool_]
    broken: list[Request] = field(default_factory=list)

    def first(self, keep: NDArray[np.bool_]) -> _Words:
        return _Words(
            self.place[keep], self.column[keep], self.rows[keep], self.tokens[keep], self.stopped[keep],
            self.over[keep], self.broken,
        )  # fmt: skip


def append(table: RowTable, plan: StepPlan, output: StepOutput, constraints: Constraints | None) -> Said:
    """Rows whose request has ended meanwhile are passed over, and tokens behind the end of one are not said."""
    held = output.verified
    words = output.tokens[:, None] if held is None else held.tokens
    counts: Int32 = (plan.sample if held is None else held.counts).astype(np.int32) * table.alive[plan.rows]
    found = _words(table, plan.rows, words, counts)
    total = len(found.place)
    if constraints is not None and table.constrained[found.rows].any():
        _follow(table, found, constraints)
    if found.over.any():
        last = np.full(len(counts), words.shape[1])
        np.minimum.at(last, found.place[found.over], found.column[found.over])
        found = found.first(found.column <= last[found.place])
    place, column, rows, tokens = found.place, found.column, found.rows, found.tokens
    table.token_ids[rows, table.known[rows] + column] = tokens
    if len(place) < total:
        counts = np.bincount(place, minlength=len(counts)).astype(np.int32)
    table.known[plan.rows] += counts
    drawn = Drawn(table.ids[rows], tokens, place * words.shape[1] + column)
    broken = {request.row for request in found.broken}
    ends = zip(rows[found.over].tolist(), found.stopped[found.over].tolist(), strict=True)
    return Said(drawn, counts, [(row, stop) for row, stop in ends if row not in broken], found.broken)


def _words(table: RowTable, rows: Int32, words: Int32, counts: Int32) -> _Words:
    """words: int32 [n, w], of which counts [n] are drawn."""
    place, column = np.nonzero(np.arange(words.shape[1]) < counts[:, None])
    own, tokens = rows[place], words[place, column]
    totals = table.known[own] + column + 1
    stopped = (table.stop_ids[own] == tokens[:, None]).any(1) & (totals >= table.min_total[own])
    return _Words(place, column, own, tokens, stopped, stopped | (totals >= table.max_total[own]))


def _follow(table: RowTable, found: _Words, constraints: Constraints) -> None:
    """Show the grammars what was said, up to the end of each row. A token that completes one is a stop, one that its
    grammar can't go on from the last."""
    going = table.constrained[found.rows]
    for column in range(int(found.column[going].max()) + 1):
        here = np.flatnonzero(going & (found.column == column))
        shown = here[~found.stopped[here]]
        requests = [table.requests[row] for row in found.rows[shown].tolist()]
        matchers = [request.matcher for request in requests if request is not None and request.matcher is not None]
        constraints.follow(matchers, found.tokens[shown].tolist())
        for at, request, matcher in zip(shown.tolist(), requests, matchers, strict=True):
            found.stopped[at] |= matcher.complete
            found.over[at] |= matcher.complete or bool(matcher.error)
            if matcher.error and request is not None:
                found.broken.append(request)
        done = found.place[here[found.over[here]]]
        going &= ~np.isin(found.place, done)
