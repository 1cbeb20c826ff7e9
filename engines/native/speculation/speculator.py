"""The scheduler's side of speculation: ask the proposers, let the budget choose, learn from what was said.

While passes carry drafts, each is planned when the one before is committed: a guess needs to know what it follows. What
it needs not know waits until the pass is on its way (`meanwhile`): getting to know rows, and what proposers put off.
Where the budget finds nothing worth trying, passes go on as if nobody guessed, one behind the other on a GPU. What
proposers do then (rows that begin and end, tokens to be seen, guesses in vain) may take OVERHEAD of the time: it waits
until that much has gone by. Guesses that are not tried are compared with what is then said (`Worth`), so that it is
noticed when they become worth a try.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import methodcaller

import numpy as np
from numpy.typing import NDArray

from engines.native.draft import Drawn
from engines.native.request import Request
from engines.native.speculation.budget import NONE, WIDTHS, Choice, StepCosts, choose, widest
from engines.native.speculation.proposer import History, Proposer
from engines.native.speculation.tree import MAX_NODES, NOTHING, Int32, Tree, check, held, merged
from engines.native.speculation.worth import Worth
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
MEETING_S = 1e-3
"""Time in which proposers get to know rows in a pass, where that leaves no more; one of them in any case."""
HIDDEN, OWN_S = 0.15, 2e-3
"""Share of a pass on its way that may be spent beside it as if it cost nothing, and of a longer one all but OWN_S: the
rest, the engine needs itself."""
MAX_REFUSED = 3
"""Askings in a row that did not pay, each of which doubles what the next must wait for."""
RECKONED = 8
"""Steps for which it stands how many nodes of a row could pay."""
NEXT = 3
"""While guesses are tried, rows are asked for the width above the newest pass's, and above this one."""
TIMED_AFTER, TIMED = 200, 8
"""Passes with drafts after which some plain ones are timed: whether drafts pay is reckoned against these."""
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
        self.worth = Worth(len(proposers), history)
        self._proposers: dict[int, Proposer] = dict(enumerate(proposers.values()))
        self._history, self._padded, self._trees, self._clock = history, padded, trees, clock
        self._vocab = vocab
        self._choice: Choice = NONE  # of the newest asking
        self._promised = [0.0] * len(proposers)  # by what it chose
        self._refused = 0  # askings in a row whose guesses did not pay
        self._credit = CREDIT_S  # s that proposers may take in vain
        self._meeting = MEETING_CREDIT_S  # s, likewise, to get to know rows
        self._since = clock()  # when it was last reckoned
        self._flights: list[_Flight] = []
        self._new: dict[int, tuple[str, int]] = {}  # rows that the proposers have not met → (salt, prompt_len)
        self._seen = np.full(len(history.known), -1, np.int32)  # of each row, tokens that they have seen; −1 = not met
        self._straight: set[int] = set()  # rows whose guesses may have no forks
        self._tried = 0  # passes with drafts since plain ones were timed
        self._plain = 0  # plain passes still to come, to time them
        self._most_tokens = GRAPH_TOKENS if padded else PASS_TOKENS
        self._turn = 0  # where the next sample of rows begins
        self._widest = 0
        self._reckoned = 0, 0, 0  # for so many rows, in this step: nodes of a row that could pay
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
        if row in self._new and self._affords(began) and self._meeting > 0:
            self._introduce(row)
        if self._seen[row] >= 0:
            self._show(np.array([row], np.int32), self._seen[[row]])
            self._each(methodcaller("end", row))
            self._meeting -= self._clock() - began
        self.worth.forget(row)
        self._seen[row] = -1
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
        if not len(rows) or not (self.active or self._catching_up() or self._affords(began)):
            return None
        decodes = len(rows)
        most = self._of_use(decodes)
        if not most:  # even if all of it held
            self._choice = NONE
            return None
        seen = self._seen[rows]
        if int(seen.min()) < 0 or (not self.active and decodes > SAMPLE):
            met = np.flatnonzero(seen >= 0)
            if not len(met):
                return None
            if not self.active and len(met) > SAMPLE:  # some of them, in turn
                self._turn = (self._turn + SAMPLE) % len(met)
                met = np.roll(met, -self._turn)[:SAMPLE]
            rows, limit, seen = rows[met], limit[met], seen[met]
        self._show(rows, seen)
        trees = self._asked(rows, np.minimum(limit, most))
        if not self.active and not self._catching_up():
            self._spend(began, self._hidden(self.costs.plain(decodes)) if in_flight else 0.0)
        return trees

    def _catching_up(self) -> bool:
        """Whether a proposer computes a long prompt part by part: it goes on, and no credit can end it half-way."""
        return any(getattr(proposer, "tokens_behind", 0) for proposer in self._proposers.values())

    def _of_use(self, decodes: int) -> int:
        """Nodes of a row beyond which no pass pays, whatever holds."""
        most = min(MAX_NODES, max(1, self._most_tokens // decodes - 1))
        if not self._padded:
            return most
        if self._reckoned[0] != decodes or self.counts.steps >= self._reckoned[1] + RECKONED:
            self._reckoned = decodes, self.counts.steps, widest(decodes, decodes * most, self.costs)
        if self.active:  # what pays now changes step by step
            most = min(most, next((width for width in WIDTHS if width > max(self._choice.width, NEXT)), MAX_NODES))
        return min(most, self._reckoned[2])

    def _asked(self, rows: Int32, limit: Int32) -> dict[int, Tree]:
        names, each = rows.tolist(), limit.tolist()
        trees = dict.fromkeys(names, NOTHING)
        for source, proposer in list(self._proposers.items()):
            found = self._ask(source, proposer, rows, limit)
            for row, most, tree in zip(names, each, found, strict=True):
                if not len(tree.tokens):
                    continue
                if source:
                    tree = Tree(tree.tokens, tree.parents, tree.confidence, np.full(len(tree), source, np.int32))
                    tree = merged(trees[row], tree, most)
                trees[row] = tree.trunk() if row in self._straight else tree
        return trees

    def choose(self, trees: dict[int, Tree], decodes: int, most: int, free: bool) -> dict[int, Tree]:
        """Those of `trees` that the next pass tries, `most` nodes at most. decodes: rows that decode in it. free: it
        may try any; else the choice is of a pass to come, and all are watched."""
        survival = {row: self.worth.survival(tree) for row, tree in trees.items() if len(tree.tokens)}
        told = list(survival.values())
        sampled = not self.active and len(trees) < decodes
        if sampled and told:
            told *= decodes // len(trees)
            free = False
        self._choice = choose(told, decodes, most, self.costs, padded=self._padded)
        if sampled and self._choice.gain < SAMPLED:
            self._choice = NONE
        if self._choice is NONE:
            self._refused = min(self._refused + 1, MAX_REFUSED) if survival else 0
        else:
            self._refused = 0
            if free:
                chosen = self._best(trees, survival)
                self._widest = max((len(tree.tokens) for tree in chosen.values()), default=0)
                return chosen
        self.worth.watch(trees, survival)
        return {}

    def _best(self, trees: dict[int, Tree], survival: dict[int, list[float]]) -> dict[int, Tree]:
        """The nodes that the choice is for, by row. Notes what they promise."""
        choice = self._choice
        counts = dict.fromkeys(survival, choice.width)
        if not choice.width:
            every = sorted(((-each, row) for row, own in survival.items() for each in own))
            for _, row in every[: choice.nodes]:
                counts[row] += 1
        found: dict[int, Tree] = {}
        kept: list[list[float]] = []
        for row, count in counts.items():
            if count:
                found[row], own = trees[row].likeliest(survival[row], count)
                kept.append(own)
        self._promised = self.worth.promised(found.values(), kept)
        return found

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

    def meanwhile(self, computed: int) -> None:
        """A pass that computes so many tokens is on its way: time for what need not be done before it."""
        began = self._clock()
        if not self.active and not (self._affords(began) and self._meeting > 0):
            return
        hidden = self._hidden(self.costs.expected(computed)) if self._padded else 0.0
        self._meet(began + max(hidden, MEETING_S))
        self._each(_put_off)
        if not self.active:
            self._meeting -= max(0.0, self._clock() - began - hidden)

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
            drawn.sources = self._learn(plan, said, flight, seconds, drawn.positions)
        elif flight.rows and not flight.mixed:
            self.costs.saw_plain(flight.rows, seconds)
        self.worth.judge()

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

    @staticmethod
    def _hidden(takes: float) -> float:
        """s that cost nothing beside a pass of so many."""
        return max(HIDDEN * takes, takes - OWN_S)

    def _spend(self, began: float, hidden: float = 0.0) -> None:
        """After what was done since `began`, of which `hidden` s cost nothing."""
        self._credit -= max(0.0, self._clock() - began - hidden) * 2**self._refused

    def close(self) -> None:
        self._each(lambda proposer: proposer.close())

    def stats(self) -> dict[str, dict[str, float]]:
        return {self.names[source]: proposer.stats() for source, proposer in self._proposers.items()}

    def _learn(
        self, plan: StepPlan, said: Verified, flight: _Flight, seconds: float, positions: NDArray[np.int64]
    ) -> NDArray[np.int8]:
        """positions: as `Drawn` has them → int8 [k], whose guess each of these tokens was; −1 = nobody's."""
        counts, rows = self.counts, flight.rows
        tokens = int(said.counts[:rows].sum())
        tell = self._one_source if len(self.names) == 1 else self._by_source
        sources, drafted, accepted = tell(said, plan, flight.trees, positions)
        counts.rows += len(flight.trees)
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
        self.worth.learn(flight.promised, accepted)
        self.costs.saw_verify(rows, flight.tokens, seconds)
        plain = self.costs.plain(rows) * tokens / rows
        counts.saved_s += plain - seconds
        counts.speedup += SMOOTH * (plain / max(seconds, 1e-9) - counts.speedup)
        return sources

    def _one_source(
        self, said: Verified, plan: StepPlan, trees: dict[int, Tree], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int8], list[int], list[int]]:
        """Whose guesses these tokens were, and of each source how many were tried, and held: all that a row has said
        but the last."""
        assert plan.drafts is not None
        nodes = plan.drafts.nodes  # of all rows: none computes a prompt beside drafts
        right = (said.counts - 1) * (nodes > 0)
        self._passes[0] += len(trees)
        place, column = np.divmod(positions, said.tokens.shape[1])
        mine = column < right[place]
        return mine.view(np.int8) - np.int8(1), [int(nodes.sum())], [int(right.sum())]

    def _by_source(
        self, said: Verified, plan: StepPlan, trees: dict[int, Tree], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int8], list[int], list[int]]:
        """The same, of several."""
        sources = np.full(said.tokens.shape, -1, np.int8)
        drafted, accepted = [0] * len(self.names), [0] * len(self.names)
        words, lengths = said.tokens.tolist(), said.counts.tolist()
        for place, row in enumerate(plan.rows.tolist()):
            tree = trees.get(row)
            if tree is None:
                continue
            whose = tree.source.tolist()
            for source in set(whose):
                self._passes[source] += 1
            for source in whose:
                drafted[source] += 1
            for step, node in enumerate(held(tree, words[place][: lengths[place]])):
                accepted[whose[node]] += 1
                sources[place, step] = whose[node]
        return sources.reshape(-1)[positions], drafted, accepted

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

    def _meet(self, until: float) -> None:
        """Rows that the proposers have not met, one at least."""
        for row in list(self._new):
            self._introduce(row)
            if self._clock() > until:
                break

    def _introduce(self, row: int) -> None:
        salt, prompt_len = self._new.pop(row)
        self._seen[row] = self._history.known[row]
        self._each(methodcaller("begin", row, salt, prompt_len))

    def _show(self, rows: Int32, seen: Int32) -> None:
        """Show the proposers what has been said since they last looked. seen: of the rows, tokens that they know."""
        known = self._history.known[rows]
        grown = known > seen
        if not grown.all():
            rows, known, seen = rows[grown], known[grown], seen[grown]
        if len(rows):
            self._each(methodcaller("observe", rows, seen))
            self._seen[rows] = known

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


def _put_off(proposer: Proposer) -> None:
    """What it has put off, where it puts anything off."""
    if (meanwhile := getattr(proposer, "meanwhile", None)) is not None:
        meanwhile()


def drafts_of(trees: dict[int, Tree], rows: Int32) -> Drafts:
    """As arrays, in the order of `rows`, int32 [d]."""
    each = [trees.get(row, NOTHING) for row in rows.tolist()]
    counts = [len(tree.tokens) for tree in each]
    nodes, straight = np.array(counts, np.int32), np.arange(max(counts))
    real = straight < nodes[:, None]
    tokens, parents = np.zeros((2, *real.shape), np.int32)
    tokens[real] = np.concatenate([tree.tokens for tree in each])
    parents[real] = np.concatenate([tree.parents for tree in each])
    return Drafts(tokens, parents, nodes, not ((parents != straight) & real).any())
