"""What a judge is asked, and how its words become a vote: strictly, so that what it did not say is never guessed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from evaluation.quality.figures import LEVEL
from evaluation.quality.results import Figure

Vote = Literal["a", "b", "tie"]

SYSTEM = """You compare two answers to one request and say which serves the person who asked better.
Judge what is right, complete, relevant and as the request wants it. A longer answer is not better for being longer; \
words that add nothing count against it. The order of the answers means nothing.
{criteria}Give your reasons in a few sentences. Then end with exactly one verdict in double brackets: \
[[A]] if answer A is better, [[B]] if answer B is better, [[C]] if neither is."""

_VERDICT = re.compile(r"\[\[\s*([ABC])\s*\]\]")
_TOLD: dict[str, Vote] = {"A": "a", "B": "b", "C": "tie"}
_SWAPPED: dict[Vote, Vote] = {"a": "b", "b": "a", "tie": "tie"}
RESAMPLES = 2_000


def question(prompt: str, first: str, second: str, reference: str, criteria: str) -> list[dict[str, str]]:
    """Chat messages for a judge."""
    parts = [f"# The request\n\n{prompt}"]
    if reference:
        parts.append(f"# What a right answer says\n\n{reference}")
    parts += [f"# Answer A\n\n{first}", f"# Answer B\n\n{second}", "# Your verdict: [[A]], [[B]] or [[C]]"]
    system = SYSTEM.format(criteria=f"{criteria.strip()}\n" if criteria.strip() else "")
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]


def verdict(text: str) -> Vote | None:
    """The one verdict in a judge's words; None where there is none, or where several differ."""
    found = set(_VERDICT.findall(text))
    return _TOLD[found.pop()] if len(found) == 1 else None


def vote(straight: Vote | None, swapped: Vote | None) -> Vote | None:
    """Of both orders: what they agree on, else a tie (the order decided); None where one is unreadable. `swapped` is
    as the judge said it, with the answers in the other order."""
    if straight is None or swapped is None:
        return None
    return straight if straight == _SWAPPED[swapped] else "tie"


def majority(votes: Sequence[Vote | None]) -> Vote | None:
    """Of the readable votes; a tie where no one verdict has most. None: there is no readable vote."""
    counted = Counter(each for each in votes if each is not None).most_common()
    if not counted:
        return None
    return counted[0][0] if len(counted) == 1 or counted[0][1] > counted[1][1] else "tie"


def kappa(pairs: Sequence[tuple[str, str]], seed: int = 0) -> Figure:
    """Cohen's kappa of two raters over the same items, with a bootstrap interval over items."""
    names = sorted({name for pair in pairs for name in pair})
    place = {name: at for at, name in enumerate(names)}
    coded = np.array([[place[one], place[other]] for one, other in pairs], dtype=np.int64).reshape(-1, 2)
    if not len(coded):
        return Figure(unit="kappa")

    def of(rows: np.ndarray[Any, np.dtype[np.int64]]) -> float:
        table = np.zeros((len(names), len(names)))
        np.add.at(table, (rows[:, 0], rows[:, 1]), 1 / len(rows))
        expected = float(table.sum(axis=1) @ table.sum(axis=0))
        return (float(np.trace(table)) - expected) / (1 - expected) if expected < 1 else math.nan

    rng = np.random.default_rng(seed)
    drawn = np.array([of(coded[rng.integers(0, len(coded), len(coded))]) for _ in range(RESAMPLES)])
    drawn = drawn[np.isfinite(drawn)]  # a draw in which both raters say one thing throughout has none
    value = of(coded)
    if not math.isfinite(value) or not len(drawn):
        return Figure(unit="kappa", n=len(coded))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Figure(value=value, low=float(low), high=float(high), unit="kappa", n=len(coded), method="bootstrap")


def length_controlled(wins: Sequence[float], lengths: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """(win rate at equal length, effect of length): a logistic regression of win = 1, tie = 0.5, loss = 0 on
    tanh(difference of lengths / its standard deviation), as length-controlled AlpacaEval has it (Dubois et al. 2024);
    the effect is in log-odds. A small ridge keeps it finite where one side always wins."""
    won = np.asarray(wins, dtype=np.float64)
    apart = np.array([one - other for one, other in lengths], dtype=np.float64)
    spread = float(apart.std()) or 1.0
    rows = np.stack([np.ones_like(won), np.tanh(apart / spread)], axis=1)
    weights, ridge = np.zeros(2), np.diag([1e-3, 0.1])
    for _ in range(50):
        guess = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (won - guess) - ridge @ weights
        curve = (rows * (guess * (1 - guess))[:, None]).T @ rows + ridge
        step = np.linalg.solve(curve, slope)
        weights += np.clip(step, -2, 2)
        if float(np.abs(step).max()) < 1e-9:
            break
    return float(1 / (1 + math.exp(-weights[0]))), float(weights[1])
