"""How often guesses hold, by what they rest on: the source of the match, the view that saw it, its length, and whether
others agree. Counted as they come true or not, so that `confidence` is what it says: the share of such that held.

A guess d tokens into a continuation rests on a match that is d longer, because all before it must have held. How far a
row's own text departs from the counts is one weight for each view: its odds, updated multiplicatively by each guess.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engines.native.speculation.tree import MAX_NODES

if TYPE_CHECKING:
    from plugins.speculative.lookahead.branches import Branches

LENGTHS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33)
"""Least match length, in tokens, of each class."""
LONGEST = 64
"""Match and what follows it; what is longer counts as that."""
SHARES = 4
ALONE, AGREED, MANY = range(3)
LEADING, TRAILING = 3, 3 + SHARES
SUPPORTS = 3 + 2 * SHARES
"""What is behind a guess: one match; two or three that agree; more that agree. Where matches part: the longest or not,
by quarter of their number (`share`)."""
SOURCES = 2
LOCAL, GLOBAL = range(SOURCES)
VIEWS = 4
RAW, WORD, LINE, KEY = range(VIEWS)
"""Raw tokens; those that begin with a word; a line's first tokens, by the line before; what follows a JSON key."""
OF_VIEW = len(LENGTHS) * SUPPORTS
CLASSES = SOURCES * VIEWS * OF_VIEW

PRIOR = 16.0
"""Guesses that the starting rates count as."""
MEMORY = 4096.0
"""Guesses after which a class's counts are halved, so that it follows what is said now."""
RATE, RATE_ALL = 0.25, 0.01
"""Steps of log odds per guess: of the row's weight of the view that guessed, and of that which new rows begin with."""
MAX_ODDS = 2.0
"""Bound of log odds."""

START = (
    (0.33, 0.57, 0.67, 0.71, 0.78, 0.81, 0.87, 0.93, 0.95, 0.97, 0.985),  # alone
    (0.47, 0.73, 0.75, 0.80, 0.86, 0.90, 0.92, 0.97, 0.97, 0.98, 0.985),  # agreed
    (0.64, 0.82, 0.86, 0.91, 0.92, 0.96, 0.97, 0.98, 0.98, 0.98, 0.985),  # many
    (0.13, 0.24, 0.24, 0.30, 0.37, 0.37, 0.42, 0.45, 0.50, 0.50, 0.50),  # leading, with up to a quarter of them
    (0.21, 0.32, 0.32, 0.36, 0.42, 0.43, 0.45, 0.45, 0.50, 0.55, 0.60),  # a half
    (0.39, 0.50, 0.51, 0.51, 0.55, 0.62, 0.65, 0.75, 0.75, 0.80, 0.80),  # three quarters
    (0.46, 0.68, 0.64, 0.67, 0.72, 0.72, 0.80, 0.80, 0.85, 0.85, 0.85),  # nearly all
    (0.07, 0.09, 0.08, 0.09, 0.08, 0.07, 0.07, 0.07, 0.07, 0.07, 0.07),  # trailing, likewise
    (0.12, 0.17, 0.18, 0.20, 0.22, 0.24, 0.28, 0.28, 0.28, 0.28, 0.28),
    (0.17, 0.25, 0.29, 0.32, 0.32, 0.35, 0.45, 0.45, 0.45, 0.45, 0.45),
    (0.21, 0.22, 0.25, 0.30, 0.35, 0.40, 0.45, 0.45, 0.45, 0.45, 0.45),
)
"""Rates before anything is counted, [support][length]: those of Qwen2.5-Coder-1.5B's answers to 280 prompts of
Spec-Bench and HumanEval (`evaluation.benchmarks.speculation_offline`), smoothed where few were seen."""

PLACE = [SUPPORTS * (sum(1 for least in LENGTHS if least <= length) - 1) for length in range(LONGEST + MAX_NODES + 2)]
"""By length, 1 … LONGEST tokens: where its classes begin among those of a source and view."""


def share(count: int, total: int) -> int:
    """Of `count` matches among `total` that part: 0 … SHARES − 1."""
    return (SHARES * count - 1) // total


def view_of(kind: int) -> int:
    """Of a class: (source × VIEWS + view) × OF_VIEW + PLACE[length] + support."""
    return kind // OF_VIEW % VIEWS


class Survival:
    """rates: float of each class, read in the inner loop. Counts can be kept between starts."""

    def __init__(self) -> None:
        of_view = [START[support][length] for length in range(len(LENGTHS)) for support in range(SUPPORTS)]
        self.rates = of_view * (SOURCES * VIEWS)
        self.weights = Weights([0.0] * VIEWS)  # that new rows begin with
        self.trials = [PRIOR] * CLASSES
        self.hits = [rate * PRIOR for rate in self.rates]

    def follow(self, guess: Branches, said: list[int], weights: Weights) -> None:
        """Learn from all guesses along the path that was said; the likeliest of each fork moves the weights: those of
        the row, and those that new rows begin with."""
        tokens, parents, kinds, sure = guess.tokens, guess.parents, guess.kinds, guess.confidence
        node, error = 0, 0.0
        for token in said:
            if node == len(tokens) or parents[node] != node:  # the likeliest of a node's stands behind it
                break
            child, reached = node, 0
            held = tokens[child] == token
            error += held - sure[child]
            self.learn(kinds[child], held)
            if held:
                reached = child + 1
            if not guess.chain:
                for _ in range(parents.count(node) - 1):
                    child = parents.index(node, child + 1)
                    held = tokens[child] == token
                    self.learn(kinds[child], held)
                    if held:
                        reached = child + 1
            if not reached:
                break
            node = reached
        view = view_of(kinds[0])
        weights.move(view, error, RATE)
        self.weights.move(view, error, RATE_ALL)

    def learn(self, kind: int, held: bool) -> None:
        """A guess of class `kind`, whose parent held, did or did not."""
        trials = self.trials[kind] + 1.0
        hits = self.hits[kind] + held
        if trials > MEMORY:
            trials, hits = 0.5 * trials, 0.5 * hits
        self.trials[kind], self.hits[kind], self.rates[kind] = trials, hits, hits / trials

    def load(self, hits: list[float], trials: list[float]) -> None:
        """Counts of an earlier run."""
        self.hits, self.trials = hits, trials
        self.rates = [hit / trial for hit, trial in zip(hits, trials, strict=True)]


class Weights:
    """log_odds, and `factors` on the odds of guesses, of each view."""

    __slots__ = ("factors", "log_odds")

    def __init__(self, log_odds: list[float]) -> None:
        self.log_odds = log_odds
        self.factors = [math.exp(log) for log in log_odds]

    def move(self, view: int, error: float, rate: float) -> None:
        """error: held (0, 1) − expected, of one guess or the sum of several. Logistic regression on a bias alone, which
        multiplies the odds by exp(rate × error)."""
        log = self.log_odds[view] + rate * error
        self.log_odds[view] = log = MAX_ODDS if log > MAX_ODDS else -MAX_ODDS if log < -MAX_ODDS else log
        self.factors[view] = math.exp(log)
