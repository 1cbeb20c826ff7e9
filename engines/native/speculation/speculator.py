"""The scheduler's side of speculation: ask the proposers, let the budget choose, learn from what was said.

While passes carry drafts, each is planned when the one before is committed: a guess needs to know what it follows.
Where the budget finds nothing worth trying, passes go on as if nobody guessed, one behind the other on a GPU. What
proposers do then (rows that begin and end, tokens to be seen, guesses in vain) may take OVERHEAD of the time: it waits
until that much has gone by. Guesses that are not tried are compared with what is then said (`_shadows`), so that it is
noticed when they become worth a try.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller

import numpy as np
from numpy.typing import NDArray

from engines.native.draft import Drawn
from engines.native.request import Request
from engines.native.speculation.budget import NONE, Choice, StepCosts, choose
from engines.native.speculation.proposer import History, Proposer
from engines.native.speculation.tree import MAX_NODES, NOTHING, Int32, Tree, check, held, merged
from engines.native.step import Drafts, StepPlan, Verified

log = logging.getLogger(__name__)

OVERHEAD, MEETING = 0.006, 0.015
"""Share of the time that asking may take while nothing of what is said is tried, and getting to know rows."""
CREDIT_S, MEETING_CREDIT_S = 0.01, 0.02
"""So much of it may be saved up, for asking and for getting to know rows: the first requests of an idle engine are
asked about at once."""
SAMPLE = 8
"""Rows that are asked about while nothing is tried; what they promise stands for all, if it is SAMPLED times what plain
passes give."""
SAMPLED = 1.3
MET = 16
"""Rows that proposers get to know in a pass, at most."""
HIDDEN = 0.15
"""Share of a pass on its way that may be spent beside it as if it cost nothing: the rest, the engine needs itself."""
MAX_REFUSED = 3
"""Askings in a row that did not pay, each of which doubles what the next must wait for."""
WATCHED = 6
"""Tokens that must have followed before a guess that was not tried is judged."""
SHADOWS = 8
"""Such guesses at most, one for a row."""
TIMED_AFTER, TIMED = 200, 8
"""Passes with drafts after which some plain ones are timed: whether drafts pay is reckoned against these."""
FADE = 0.05
"""Weight of the newest pass in what a source's promises are worth."""
RATE = (0.05, 1.5)
"""Bounds of that factor."""
SUREST = 0.995
SMOOTH = 0.05
"""Weight of the newest pass in the figures that are shown."""
COMPUTED = ("draft", "eagle3", "medusa")
POOR, POOR_AFTER = 0.2, 500
"""Accepted tokens per row-pass of a proposer that computes, under which it is taken to be mismatched, and row-passes
until then: heads that fit have several times as many (SpecForge #310)."""
PASS_TOKENS, GRAPH_TOKENS = 64, 512
"""Tokens of a pass with drafts beyond which no device verifies for less than it would say: a CPU, a GPU."""


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
    """A launched pass: the trees that it tries, by row; what each source promises of them, in tokens; when its plan
    began."""

    trees: dict[int, Tree]
    promised: list[float]
    rows: int
    tokens: int
    mixed: bool  # prompts are computed beside
    begun: float


class Speculator:
    """Owned by the scheduler. padded: passes with drafts are graphs of one width. trees: the engine verifies forks.
    vocab: token ids of the model."""

    def __init__(
        self,
        proposers: Mapping[str, Proposer],
        history: History,
        costs: StepCosts,
        *,
        padded: bool,
        trees: bool,
        vocab: int = 1 << 31,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names = tuple(proposers)
        self.counts = Counts(by_source={name: [0, 0] for name in proposers})
        self.costs = costs
        self._proposers: dict[int, Proposer] = dict(enumerate(proposers.values()))
        self._history, self._padded, self._trees, self._clock = history, padded, trees, clock
        self._worth = [1.0] * len(proposers)
        self._vocab = vocab
        self._choice: Choice = NONE  # of the newest asking
        self._refused = 0  # askings in a row whose guesses did not pay
        self._credit = CREDIT_S  # s that proposers may take in vain
        self._meeting = MEETING_CREDIT_S  # s, likewise, to get to know rows
        self._since = clock()  # when it was last reckoned
        self._flights: list[_Flight] = []
        self._shadows: dict[int, tuple[int, Tree, list[float]]] = {}  # row → (tokens known then, guessed, survival)
        self._new: dict[int, tuple[str, int]] = {}  # rows that the proposers have not met → (salt, prompt_len)
        self._seen: dict[int, int] = {}  # row → tokens that they have seen
        self._straight: set[int] = set()  # rows whose guesses may have no forks
        self._tried = 0  # passes with drafts since plain ones were timed
        self._plain = 0  # plain passes still to come, to time them
        self._most_tokens = GRAPH_TOKENS if padded else PASS_TOKENS
        self._turn = 0  # where the next sample of rows begins
        self._widest = 0
        self._passes = [0] * len(proposers)  # row-passes of each source
        self._poor: set[int] = set()  # sources that a warning was given for
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
        self._new[request.row] = request.salt, request.prompt_len
        if request.params.adjusts or not self._trees:
            self._straight.add(request.row)
        self._refused = 0

    def end(self, row: int) -> None:
        """Its tokens are still in the history."""
        began = self._clock()
        if self._affords(began) and self._meeting > 0:
            self._meet([row])
        if row in self._seen:
            self._show([row])
            self._each(lambda proposer: proposer.end(row))
            self._meeting -= self._clock() - began
        self._shadows.pop(row, None)
        self._seen.pop(row, None)
        self._new.pop(row, None)
        self._straight.discard(row)

    # A pass

    def guesses(self, rows: Int32, limit: Int32, in_flight: bool) -> dict[int, Tree] | None:
        """What follows the rows int32 [n] that are to decode; limit: int32 [n], nodes that are of use; in_flight: a
        pass is on its way meanwhile. By row; None where nothing was asked."""
        began = self._clock()
        if self._plain > 0:
            self._plain -= 1
            return None
        if not len(rows) or not (self.active or self._affords(began)):
            return None
        limit = np.minimum(limit, min(MAX_NODES, max(1, self._most_tokens // len(rows) - 1)))
        decodes = len(rows)
        if self.active:
            self._meet([row for row in rows.tolist() if row in self._new][:MET])
            known = [place for place, row in enumerate(rows.tolist()) if row in self._seen]
            rows, limit = rows[known], limit[known]
        else:
            some = self._sample(rows)
            rows, limit, began = rows[some], limit[some], self._clock()
        if not len(rows):
            return None
        self._show(rows.tolist())
        trees = dict.fromkeys(rows.tolist(), NOTHING)
        for source, proposer in list(self._proposers.items()):
            found = self._ask(source, proposer, rows, limit)
            for row, most, tree in zip(rows.tolist(), limit.tolist(), found, strict=True):
                if len(tree):
                    tree = self._of(source, tree)
                    tree = merged(trees[row], tree, most) if len(trees[row]) else tree
                    trees[row] = self._straightened(row, tree)
        if not self.active:
            self._spend(began, HIDDEN * self.costs.plain(decodes) if in_flight else 0.0)
        return trees

    def _sample(self, rows: Int32) -> list[int]:
        """Places of at most SAMPLE of them, in turn, that the proposers know. They get to know as many as they may."""
        began = self._clock()
        new = [row for row in rows.tolist() if row in self._new]
        if new and self._meeting > 0:
            self._meet(new[: max(1, SAMPLE - (len(rows) - len(new)))])
            self._meeting -= self._clock() - began
        known = [place for place, row in enumerate(rows.tolist()) if row in self._seen]
        if len(known) > SAMPLE:
            self._turn = (self._turn + SAMPLE) % len(known)
            known = (known * 2)[self._turn : self._turn + SAMPLE]
        return known

    def choose(self, trees: dict[int, Tree], decodes: int, most: int, free: bool) -> dict[int, Tree]:
        """Those of `trees` that the next pass tries, `most` nodes at most. decodes: rows that decode in it. free: it
        may try any; else the choice is of a pass to come, and all are watched."""
        survival = {row: self._survival(tree) for row, tree in trees.items() if len(tree)}
        told = list(survival.values())
        sampled = not self.active and len(trees) < decodes
        if sampled and told:
            told *= decodes // len(trees)
            free = False
        self._choice = choose(told, decodes, most, self.costs, padded=self._padded)
        if sampled and self._choice.gain < SAMPLED:
            self._choice = NONE
        self._promised = [0.0] * len(self.names)
        if self._choice is NONE:
            self._refused = min(self._refused + 1, MAX_REFUSED) if survival else 0
        else:
            self._refused = 0
            if free:
                chosen = self._best(trees, survival)
                self._widest = max(map(len, chosen.values()), default=0)
                return chosen
        for row, own in survival.items():
            if len(self._shadows) >= SHADOWS:
                break
            if row in self._shadows:
                continue  # it is judged first
            self._shadows[row] = (int(self._history.known[row]), trees[row], own)
        return {}

    def pause(self) -> None:
        """Prompts are computed beside: nothing is tried."""
        self._choice = NONE

    def launched(self, plan: StepPlan, trees: dict[int, Tree], decodes: int, now: float) -> None:
        """trees: that it tries, by row. The first `decodes` rows decode. now: when its planning began, s of the
        clock."""
        tokens, promised = decodes, [0.0] * len(self.names)
        if plan.drafts is not None:
            tokens = decodes * (self._choice.width + 1) if self._padded else int(plan.count[:decodes].sum())
            promised = self._promised
        self._flights.append(_Flight(trees, promised, decodes, tokens, len(plan.rows) > decodes, now))

    def committed(self, plan: StepPlan, said: Verified | None, drawn: Drawn) -> None:
        """The oldest launched pass is over; the history knows what it has said. Enters whose guesses `drawn` are."""
        flight = self._flights.pop(0)
        now = self._clock()
        # Passes that follow each other without a pause: what lies between the end of one and the planning of the next,
        # telling clients above all, is a part of what a pass takes.
        paused = flight.begun - self._last > (now - flight.begun) / 2
        seconds, self._last = now - (flight.begun if paused else self._last), now
        self.counts.steps += 1
        if said is not None:
            sources = np.full(said.tokens.size, -1, np.int8)
            self._learn(plan, said, flight, seconds, sources)
            drawn.sources = sources[drawn.positions]
        elif flight.rows and not flight.mixed:
            self.costs.saw_plain(flight.rows, seconds)
        if self._shadows:
            self._judge()

    def failed(self) -> None:
        """The oldest launched pass raised."""
        self._flights.pop(0)
        self._last = self._clock()

    # What proposers may take in vain

    def _affords(self, now: float) -> bool:
        """Whether proposers may be asked though nothing of theirs is tried."""
        gone = now - self._since
        self._credit = min(self._credit + OVERHEAD * gone, CREDIT_S)
        self._meeting = min(self._meeting + MEETING * gone, MEETING_CREDIT_S)
        self._since = now
        return self._credit > 0

    def _spend(self, began: float, hidden: float = 0.0) -> None:
        """After what was done since `began`, of which `hidden` s cost nothing."""
        self._credit -= max(0.0, self._clock() - began - hidden) * 2**self._refused

    def close(self) -> None:
        self._each(lambda proposer: proposer.close())

    def stats(self) -> dict[str, dict[str, float]]:
        return {self.names[source]: proposer.stats() for source, proposer in self._proposers.items()}

    def _learn(
        self, plan: StepPlan, said: Verified, flight: _Flight, seconds: float, sources: NDArray[np.int8]
    ) -> None:
        counts, width = self.counts, said.tokens.shape[1]
        tokens = int(said.counts[: flight.rows].sum())
        drafted, accepted = [0] * len(self.names), [0] * len(self.names)
        words, lengths = said.tokens.tolist(), said.counts.tolist()
        for place, row in enumerate(plan.rows[: flight.rows].tolist()):
            tree = flight.trees.get(row)
            if tree is None:
                continue
            counts.rows += 1
            path = held(tree, words[place][: lengths[place]])
            if len(self.names) == 1:
                self._passes[0] += 1
                drafted[0] += len(tree)
                accepted[0] += len(path)
                sources[place * width : place * width + len(path)] = 0
                continue
            whose = tree.source.tolist()
            for source in set(whose):
                self._passes[source] += 1
            for source in whose:
                drafted[source] += 1
            for step, node in enumerate(path):
                accepted[whose[node]] += 1
                sources[place * width + step] = whose[node]
        for source, name in enumerate(self.names):
            counts.by_source[name][0] += drafted[source]
            counts.by_source[name][1] += accepted[source]
            self._warn(source)
        counts.drafted += sum(drafted)
        counts.accepted += sum(accepted)
        counts.verified += 1
        self._tried += 1
        if self._tried >= TIMED_AFTER:
            self._tried, self._plain, self._choice = 0, TIMED, NONE
        self._value(flight.promised, accepted)
        self.costs.saw_verify(flight.rows, flight.tokens, seconds)
        plain = self.costs.plain(flight.rows) * tokens / flight.rows
        counts.saved_s += plain - seconds
        counts.speedup += SMOOTH * (plain / max(seconds, 1e-9) - counts.speedup)

    def _warn(self, source: int) -> None:
        """Of a draft model or head whose guesses hardly ever hold, once."""
        name, passes = self.names[source], self._passes[source]
        if name not in COMPUTED or source in self._poor or passes < POOR_AFTER:
            return
        accepted = self.counts.by_source[name][1] / passes
        if accepted < POOR:
            self._poor.add(source)
            log.warning(
                "%s: %.2f of its guesses held per pass, over %d passes; one that fits has several times as many: look "
                "whether it was made for this model (layers, d2t, chat template), or leave it out",
                name, accepted, passes,
            )  # fmt: skip

    def _judge(self) -> None:
        """Compare guesses that were not tried with what has followed by now."""
        history = self._history
        for row, (since, tree, survival) in list(self._shadows.items()):
            if int(history.known[row]) < since + WATCHED:
                continue
            del self._shadows[row]
            path = held(tree, history.token_ids[row, since : since + WATCHED].tolist())
            promised, kept = [0.0] * len(self.names), [0] * len(self.names)
            depths, whose = tree.depths().tolist(), tree.source.tolist()
            for depth, source, share in zip(depths, whose, survival, strict=True):
                promised[source] += share if depth <= WATCHED else 0.0
            for node in path:
                kept[whose[node]] += 1
            self._value(promised, kept)

    def _value(self, promised: Sequence[float], kept: Sequence[int]) -> None:
        """What is each source's word worth? Of what it promised with its worth at that time, so much was kept."""
        for source, (wanted, found) in enumerate(zip(promised, kept, strict=True)):
            if wanted > 0:
                off = min(max((found - wanted) / (wanted + 1), -1.0), 1.0)
                worth = self._worth[source] * (1 + FADE * off)
                self._worth[source] = min(max(worth, RATE[0]), RATE[1])

    def _straightened(self, row: int, tree: Tree) -> Tree:
        """Without forks, where the row may have none: the chain that comes first."""
        if row in self._straight and not tree.chain:
            forks = np.flatnonzero(tree.parents != np.arange(len(tree)))
            tree = tree.first(int(forks[0]))
        return tree

    @staticmethod
    def _of(source: int, tree: Tree) -> Tree:
        if not source:
            return tree
        return Tree(tree.tokens, tree.parents, tree.confidence, np.full(len(tree), source, np.int32))

    def _survival(self, tree: Tree) -> list[float]:
        """Of each node, the probability that it and all before it hold, by what its source's word is worth."""
        reached = [1.0]
        parents, sure = tree.parents.tolist(), tree.confidence.tolist()
        if len(self.names) == 1:
            worth = self._worth[0]
            for parent, own in zip(parents, sure, strict=True):
                reached.append(reached[parent] * min(own * worth, SUREST))
        else:
            for parent, own, source in zip(parents, sure, tree.source.tolist(), strict=True):
                reached.append(reached[parent] * min(own * self._worth[source], SUREST))
        return reached[1:]

    def _best(self, trees: dict[int, Tree], survival: dict[int, list[float]]) -> dict[int, Tree]:
        """The nodes that the choice is for, by row. Notes what they promise."""
        choice = self._choice
        best: dict[int, set[int]] = {}
        if not choice.width:
            every = sorted(((-each, row, node) for row, own in survival.items() for node, each in enumerate(own)))
            for _, row, node in every[: choice.nodes]:
                best.setdefault(row, set()).add(node)
        found: dict[int, Tree] = {}
        for row, own in survival.items():
            tree = trees[row]
            keep = np.ones(len(own), np.bool_)
            if not choice.width:
                keep[[node for node in range(len(own)) if node not in best.get(row, ())]] = False
            elif len(own) > choice.width:
                keep[np.argsort(-np.array(own), kind="stable")[choice.width :]] = False
            if not keep.all():
                tree = tree.kept(keep)
                own = np.array(own)[keep].tolist()
            if not len(tree):
                continue
            found[row] = tree
            if len(self.names) == 1:
                self._promised[0] += sum(own)
            else:
                for source, share in zip(tree.source.tolist(), own, strict=False):
                    self._promised[source] += share
        return found

    def _meet(self, rows: list[int]) -> None:
        """Rows that the proposers have not met."""
        for row in rows:
            if row in self._new:
                salt, prompt_len = self._new.pop(row)
                self._seen[row] = int(self._history.known[row])
                self._each(methodcaller("begin", row, salt, prompt_len))

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
            found = list(proposer.propose(rows, limit))
            check(found, limit.tolist(), self._vocab)
            return found
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
    straight = (parents == np.arange(width)) | (np.arange(width) >= nodes[:, None])
    return Drafts(tokens, parents, nodes, bool(straight.all()))
