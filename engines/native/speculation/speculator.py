"""The scheduler's side of speculation: ask the proposers, let the budget choose, learn from what was said.

While passes carry drafts, each is planned when the one before is committed: a guess needs to know what it follows.
Where the budget finds nothing worth trying, passes go on as if nobody guessed, one behind the other on a GPU. Guesses
are then asked for as often as costs OVERHEAD of the time, and rarer if they go on not paying; they are compared with
what is then said (`_shadows`), so that it is noticed when they become worth a try.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engines.native.draft import Drawn
from engines.native.request import Request
from engines.native.speculation.budget import NONE, Choice, StepCosts, choose
from engines.native.speculation.proposer import History, Proposer
from engines.native.speculation.tree import MAX_NODES, NOTHING, Float32, Tree
from engines.native.step import Drafts, Int32, StepPlan, Verified

log = logging.getLogger(__name__)

OVERHEAD, HIDDEN = 0.01, 0.1
"""Share of a plain pass that asking in vain may take, on average; and where the device is busy meanwhile."""
MAX_REST = 64
"""Plain passes between two askings at most."""
EAGER = 1
"""And after a request has come."""
WATCHED = 6
"""Tokens that must have followed before a guess that was not tried is judged."""
FADE = 0.02
"""Weight of the newest guess in what a source's promises are worth."""
RATE = (0.05, 1.5)
"""Bounds of that factor."""
SUREST = 0.995
SMOOTH = 0.05
"""Weight of the newest pass in the figures that are shown."""


@dataclass(slots=True)
class Counts:
    """Since the start. rows: row-passes with drafts; by_source: name → [drafted, accepted]; saved_s: what the tokens of
    passes with drafts would have taken in plain ones, less what they took; speedup: of the newest passes."""

    steps: int = 0
    verified: int = 0
    rows: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, list[int]] = field(default_factory=dict)
    saved_s: float = 0.0
    speedup: float = 1.0


@dataclass(slots=True)
class _Flight:
    """A launched pass: the trees that it tries, by row; when its plan began."""

    trees: dict[int, Tree]
    rows: int
    tokens: int
    mixed: bool  # prompts are computed beside
    begun: float


class Speculator:
    """Owned by the scheduler. padded: passes with drafts are graphs of one width. trees: the engine verifies forks."""

    def __init__(
        self,
        proposers: Mapping[str, Proposer],
        history: History,
        costs: StepCosts,
        *,
        padded: bool,
        trees: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names = tuple(proposers)
        self.counts = Counts(by_source={name: [0, 0] for name in proposers})
        self.costs = costs
        self._proposers: dict[int, Proposer] = dict(enumerate(proposers.values()))
        self._history, self._padded, self._trees, self._clock = history, padded, trees, clock
        self._worth = [1.0] * len(proposers)
        self._choice: Choice = NONE  # of the newest asking
        self._resting = 0  # plain passes until guesses are asked for again
        self._refused = 0  # askings in a row whose guesses did not pay
        self._asked = 0.0  # when the newest asking began, s
        self._flights: list[_Flight] = []
        self._shadows: dict[int, tuple[int, Tree]] = {}  # row → (tokens known then, what was guessed)
        self._seen: dict[int, int] = {}  # row → tokens that the proposers have seen
        self._straight: set[int] = set()  # rows whose guesses may have no forks
        self._widest = 0
        self._last = 0.0  # when the newest pass was committed

    @property
    def active(self) -> bool:
        """Guesses pay at present: each pass is planned when nothing is on its way."""
        return self._choice is not NONE

    @property
    def width(self) -> int:
        """Guesses of the row that tried the most, in the newest pass that tried any; 0 where they don't pay."""
        return self._widest if self.active else 0

    # Rows

    def begin(self, request: Request) -> None:
        row = request.row
        self._seen[row] = len(request.token_ids)
        if request.params.adjusts or not self._trees:
            self._straight.add(row)
        self._each(lambda proposer: proposer.begin(row, request.salt, request.prompt_len))
        self._resting = min(self._resting, EAGER)

    def end(self, row: int) -> None:
        """Its tokens are still in the history."""
        self._show([row])
        self._shadows.pop(row, None)
        self._seen.pop(row, None)
        self._straight.discard(row)
        self._each(lambda proposer: proposer.end(row))

    # A pass

    def guesses(self, rows: Int32, limit: Int32) -> dict[int, Tree] | None:
        """What follows the rows int32 [n] that are to decode; limit: int32 [n], nodes that are of use. By row; None
        where nothing was asked."""
        if not len(rows) or not (self.active or self._resting <= 0):
            return None
        self._asked = self._clock()
        self._show(list(self._seen))
        trees = dict.fromkeys(rows.tolist(), NOTHING)
        for source, proposer in list(self._proposers.items()):
            found = self._ask(source, proposer, rows, limit)
            for row, most, tree in zip(rows.tolist(), limit.tolist(), found, strict=True):
                trees[row] = merged(trees[row], self._weighed(row, tree, source), min(most, MAX_NODES))
        return trees

    def choose(self, trees: dict[int, Tree], decodes: int, most: int, free: bool) -> dict[int, Tree]:
        """Those of `trees` that the next pass tries, `most` nodes at most. decodes: rows that decode in it. free: it
        may try any; else the choice is of a pass to come, and all are watched."""
        trees = {row: tree for row, tree in trees.items() if len(tree)}
        survival = {row: tree.survival() for row, tree in trees.items()}
        self._choice = choose(list(survival.values()), decodes, most, self.costs, padded=self._padded)
        chosen: dict[int, Tree] = {}
        if self._choice is NONE:
            self._refused = self._refused + 1 if trees else 0
            self._rest(decodes, free)
        else:
            self._refused = 0
            if free:
                chosen = _best(trees, survival, self._choice)
                self._widest = max(map(len, chosen.values()), default=0)
        for row, tree in trees.items():
            if row not in chosen:
                self._shadows[row] = (int(self._history.known[row]), tree)
        return chosen

    def _rest(self, decodes: int, free: bool) -> None:
        """After an asking in vain."""
        share = (OVERHEAD if free else HIDDEN) * self.costs.plain(decodes)
        passes = (self._clock() - self._asked) / share * 2 ** min(self._refused, 6)
        self._resting = min(int(passes), MAX_REST)

    def pause(self) -> None:
        """Prompts are computed beside: nothing is tried."""
        self._choice, self._resting = NONE, EAGER

    def launched(self, plan: StepPlan, trees: dict[int, Tree], decodes: int, now: float) -> None:
        """trees: that it tries, by row. The first `decodes` rows decode. now: when its planning began, s of the
        clock."""
        self._resting -= 1
        tokens = int(plan.count[:decodes].sum())
        if plan.drafts is not None and self._padded:
            tokens = decodes * (self._choice.width + 1)
        self._flights.append(_Flight(trees, decodes, tokens, len(plan.rows) > decodes, now))

    def committed(self, plan: StepPlan, said: Verified | None, drawn: Drawn) -> None:
        """The oldest launched pass is over; the history knows what it has said. Enters whose guesses `drawn` are."""
        flight = self._flights.pop(0)
        now = self._clock()
        seconds, self._last = now - max(flight.begun, self._last), now
        self.counts.steps += 1
        sources = np.full(len(plan.rows) * (1 if said is None else said.tokens.shape[1]), -1, np.int8)
        if said is not None:
            self._learn(plan, said, flight, seconds, sources)
        elif flight.rows and not flight.mixed:
            self.costs.saw_plain(flight.rows, seconds)
        drawn.sources = sources[drawn.positions]
        self._judge()

    def failed(self) -> None:
        """The oldest launched pass raised."""
        self._flights.pop(0)
        self._last = self._clock()

    def close(self) -> None:
        self._each(lambda proposer: proposer.close())

    def stats(self) -> dict[str, dict[str, float]]:
        return {self.names[source]: proposer.stats() for source, proposer in self._proposers.items()}

    def _learn(
        self, plan: StepPlan, said: Verified, flight: _Flight, seconds: float, sources: NDArray[np.int8]
    ) -> None:
        counts, width = self.counts, said.tokens.shape[1]
        tokens = int(said.counts[: flight.rows].sum())
        for place, row in enumerate(plan.rows[: flight.rows].tolist()):
            tree = flight.trees.get(row)
            if tree is None:
                continue
            path = held(tree, said.tokens[place, : said.counts[place]].tolist())
            sources[place * width : place * width + len(path)] = tree.source[path]
            counts.rows += 1
            counts.drafted += len(tree)
            counts.accepted += len(path)
            for source in tree.source.tolist():
                counts.by_source[self.names[source]][0] += 1
            for node in path:
                counts.by_source[self.names[int(tree.source[node])]][1] += 1
            self._value(tree, path)
        counts.verified += 1
        self.costs.saw_verify(flight.rows, flight.tokens, seconds)
        plain = self.costs.plain(flight.rows) * tokens / flight.rows
        counts.saved_s += plain - seconds
        counts.speedup += SMOOTH * (plain / max(seconds, 1e-9) - counts.speedup)

    def _judge(self) -> None:
        """Compare guesses that were not tried with what has followed by now."""
        history = self._history
        for row, (since, tree) in list(self._shadows.items()):
            if int(history.known[row]) >= since + WATCHED:
                del self._shadows[row]
                told = history.token_ids[row, since : since + WATCHED].tolist()
                shallow = tree.kept(tree.depths() <= WATCHED)
                self._value(shallow, held(shallow, told))

    def _value(self, tree: Tree, path: list[int]) -> None:
        """The nodes of `path` held: what is each source's word worth?"""
        reached = {0, *(node + 1 for node in path)}
        for node, (parent, source) in enumerate(zip(tree.parents.tolist(), tree.source.tolist(), strict=True)):
            if parent in reached:
                promised = float(tree.confidence[node])  # with its worth at that time
                worth = self._worth[source] + FADE * (float(node + 1 in reached) - promised)
                self._worth[source] = min(max(worth, RATE[0]), RATE[1])

    def _weighed(self, row: int, tree: Tree, source: int) -> Tree:
        """With what its source's word is worth."""
        sure = np.minimum(tree.confidence * np.float32(self._worth[source]), np.float32(SUREST))
        tree = Tree(tree.tokens, tree.parents, sure, np.full(len(tree), source, np.int32))
        if row in self._straight and not tree.chain:
            forks = np.flatnonzero(tree.parents != np.arange(len(tree)))
            tree = tree.first(int(forks[0]))
        return tree

    def _show(self, rows: list[int]) -> None:
        """Show the proposers what has been said since they last looked."""
        known = self._history.known
        grown = [(row, self._seen[row]) for row in rows if known[row] > self._seen[row]]
        if grown:
            places, since = np.array(grown, np.int32).T
            self._each(lambda proposer: proposer.observe(places, since))
            self._seen.update({row: int(known[row]) for row, _ in grown})

    def _ask(self, source: int, proposer: Proposer, rows: Int32, limit: Int32) -> list[Tree]:
        try:
            return list(proposer.propose(rows, limit))
        except Exception as error:
            self._give_up(source, error)
            return [NOTHING] * len(rows)

    def _each(self, call: Callable[[Proposer], None]) -> None:
        for source, proposer in list(self._proposers.items()):
            try:
                call(proposer)
            except Exception as error:
                self._give_up(source, error)

    def _give_up(self, source: int, error: Exception) -> None:
        """Guesses are a help, and no need: the engine goes on without them."""
        log.error("proposer %s is left out from now on: %s", self.names[source], error, exc_info=error)
        del self._proposers[source]


def _best(trees: dict[int, Tree], survival: dict[int, Float32], choice: Choice) -> dict[int, Tree]:
    """The nodes that `choice` is for, by row."""
    found: dict[int, Tree] = {}
    least = 0.0 if choice.width else float(-np.sort(-np.concatenate(list(survival.values())))[choice.nodes - 1])
    for row, worth in survival.items():
        keep = worth >= least
        if choice.width:
            keep[np.argsort(-worth, kind="stable")[choice.width :]] = False
        if len(tree := trees[row].kept(keep)):
            found[row] = tree
    return found


def held(tree: Tree, tokens: list[int]) -> list[int]:
    """The nodes that `tokens`, which were said, follow from the root on."""
    path: list[int] = []
    at = 0
    for token in tokens:
        below = np.flatnonzero((tree.parents == at) & (tree.tokens == token))
        if not len(below):
            break
        path.append(int(below[0]))
        at = int(below[0]) + 1
    return path


def merged(one: Tree, other: Tree, most: int) -> Tree:
    """Both; a node that is in both keeps the greater confidence. At most `most` nodes, the surest."""
    if not len(one) or not len(other):
        tree = one if len(one) else other
    else:
        tokens, parents = one.tokens.tolist(), one.parents.tolist()
        sure, source = one.confidence.tolist(), one.source.tolist()
        place = {(parent, token): node + 1 for node, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
        moved = [0]
        for node in range(len(other)):
            key = (moved[int(other.parents[node])], int(other.tokens[node]))
            if key not in place:
                tokens.append(key[1])
                parents.append(key[0])
                sure.append(float(other.confidence[node]))
                source.append(int(other.source[node]))
                place[key] = len(tokens)
            elif other.confidence[node] > sure[place[key] - 1]:
                sure[place[key] - 1] = float(other.confidence[node])
                source[place[key] - 1] = int(other.source[node])
            moved.append(place[key])
        tree = Tree(
            np.array(tokens, np.int32), np.array(parents, np.int32),
            np.array(sure, np.float32), np.array(source, np.int32),
        )  # fmt: skip
    if len(tree) <= most:
        return tree
    keep = np.zeros(len(tree), np.bool_)
    keep[np.argsort(-tree.survival(), kind="stable")[:most]] = True
    return tree.kept(keep)


def drafts_of(trees: dict[int, Tree], rows: Int32) -> Drafts:
    """As arrays, in the order of `rows`, int32 [d]."""
    width = max(len(tree) for tree in trees.values())
    tokens, parents = np.zeros((2, len(rows), width), np.int32)
    nodes = np.zeros(len(rows), np.int32)
    for place, row in enumerate(rows.tolist()):
        tree = trees.get(row)
        if tree is not None:
            nodes[place] = len(tree)
            tokens[place, : len(tree)], parents[place, : len(tree)] = tree.tokens, tree.parents
    return Drafts(tokens, parents, nodes, all(tree.chain for tree in trees.values()))
