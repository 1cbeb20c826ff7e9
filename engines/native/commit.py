"""What a pass has said goes into the row table: tokens, stops, grammars. One column at a time; a plain pass has one."""

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
    ended: list[tuple[int, bool]] = field(default_factory=list)
    broken: list[Request] = field(default_factory=list)


def append(table: RowTable, plan: StepPlan, output: StepOutput, constraints: Constraints | None) -> Said:
    """Rows whose request has ended meanwhile are passed over, and tokens behind the end of one are not said."""
    held = output.verified
    words = output.tokens[:, None] if held is None else held.tokens
    counts = plan.sample.astype(np.int32) if held is None else held.counts
    width = words.shape[1]
    ids, tokens, places = [], [], []
    said = Said(Drawn(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)), np.zeros_like(counts))
    at = np.flatnonzero(table.alive[plan.rows] & (counts > 0))
    for column in range(width):
        at = at[counts[at] > column]
        if not len(at):
            break
        rows, new = plan.rows[at], words[at, column]
        totals = table.known[rows]
        table.token_ids[rows, totals] = new
        totals = totals + 1
        table.known[rows] = totals
        said.kept[at] += 1
        ids.append(table.ids[rows])
        tokens.append(new)
        places.append(at * width + column)
        stopped = (table.stop_ids[rows] == new[:, None]).any(1) & (totals >= table.min_total[rows])
        broken = np.zeros(len(at), np.bool_)
        if constraints is not None and table.constrained[rows].any():
            stopped |= _follow(table, rows, new, stopped, constraints, broken, said)
        ended = (stopped | (totals >= table.max_total[rows])) & ~broken
        said.ended += zip(rows[ended].tolist(), stopped[ended].tolist(), strict=True)
        at = at[~ended & ~broken]
    if ids:
        said.drawn = Drawn(np.concatenate(ids), np.concatenate(tokens), np.concatenate(places))
    return said


def _follow(
    table: RowTable,
    rows: Int32,
    tokens: Int32,
    stopped: NDArray[np.bool_],
    constraints: Constraints,
    broken: NDArray[np.bool_],
    said: Said,
) -> NDArray[np.bool_]:
    """Show the grammars what was said → which of them are complete; those that can't go on are marked in `broken`."""
    complete = np.zeros(len(rows), np.bool_)
    places = np.flatnonzero(table.constrained[rows] & ~stopped)
    requests = [table.requests[row] for row in rows[places].tolist()]
    matchers = [request.matcher for request in requests if request is not None and request.matcher is not None]
    constraints.follow(matchers, tokens[places].tolist())
    for place, request, matcher in zip(places, requests, matchers, strict=True):
        complete[place] = matcher.complete
        if matcher.error and request is not None:
            broken[place] = True
            said.broken.append(request)
    return complete
