"""How many nodes a pass may carry. A pass with n rows and k nodes says n + S(k) tokens, where S(k) is the sum of the
survival of the k best nodes, and takes T(n, n + k) seconds; the budget takes the k with the most tokens per second, and
none where no k beats a plain pass by MARGIN.

What passes cost is measured: at start one by one for a few sizes (`prior`), then every one that runs. What guesses are
worth is measured: each source's promises are multiplied by how often it kept them. Where nothing is tried because it
doesn't pay, guesses are still made now and then and compared with what is said, so that it comes back.

    speed-up = (1 + hits) / cost ratio     hits: accepted tokens per row and pass; cost ratio: T(n, n + k) / T(n, n)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, zip_longest

MARGIN = 1.05
"""A pass with drafts must promise so many times the tokens per second: promises are uncertain, plain passes are not."""
FADE = 0.1
"""Weight of the newest measurement of a size."""
OUTLIER = 3.0
"""A measurement counts as at most so many times what was expected: the first of its kind compiles."""
ODD, BELIEVED = 1.5, 4
"""Times what is usual, and how often in a row."""
LEAST_S = 1e-6


@dataclass(slots=True)
class StepCosts:
    """Seconds of a pass by its rows and tokens. prior: (tokens, seconds), rising, of passes at start; overhead, of_row:
    seconds that a pass with drafts takes besides, in all and for each row, since nothing is prepared while it runs.

    What was measured for (rows, tokens) counts. Else plain passes of those rows, which are measured all the time and
    know how long the rows are, times what the prior says of more tokens, times how far off that was lately.
    """

    prior: Sequence[tuple[int, float]]
    overhead: float = 0.0
    of_row: float = 0.0
    _plain: dict[int, float] = field(default_factory=dict)  # rows bucket → seconds
    _verify: dict[tuple[int, int], float] = field(default_factory=dict)  # (rows, tokens) buckets → seconds
    _doubts: dict[tuple[object, int], int] = field(default_factory=dict)
    _off: list[float] = field(default_factory=lambda: [1.0, 1.0])  # of plain passes, of those with drafts
    _sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._sizes = [size for size, _ in self.prior]

    def expected(self, tokens: int) -> float:
        """The prior, straight lines between its points, the last one prolonged."""
        sizes = self._sizes
        if len(sizes) == 1:
            return self.prior[0][1] * max(1.0, tokens / sizes[0])
        at = min(max(bisect_left(sizes, tokens), 1), len(sizes) - 1)
        (x0, y0), (x1, y1) = self.prior[at - 1], self.prior[at]
        return max(y0 + (y1 - y0) * (tokens - x0) / (x1 - x0), min(y0, y1) * 0.5)

    def plain(self, rows: int) -> float:
        found = self._plain.get(_bucket(rows))
        return found if found is not None else self.expected(rows) * self._off[0]

    def verify(self, rows: int, tokens: int) -> float:
        found = self._verify.get((_bucket(rows), _bucket(tokens)))
        if found is not None:
            return found
        return self._reckoned(rows, tokens) * self._off[1] + self.overhead + rows * self.of_row

    def _reckoned(self, rows: int, tokens: int) -> float:
        return self.plain(rows) * max(1.0, self.expected(tokens) / self.expected(rows))

    def saw_plain(self, rows: int, seconds: float) -> None:
        usual = self.plain(rows)
        if self._odd(("plain", _bucket(rows)), seconds, usual):
            return
        seconds = min(max(seconds, LEAST_S), OUTLIER * usual)
        key = _bucket(rows)
        self._plain[key] = seconds if key not in self._plain else usual + FADE * (seconds - usual)
        self._off[0] += FADE * (seconds / self.expected(rows) - self._off[0])

    def saw_verify(self, rows: int, tokens: int, seconds: float) -> None:
        usual = self.verify(rows, tokens)
        if self._odd((_bucket(rows), _bucket(tokens)), seconds, usual):
            return
        seconds = min(max(seconds, LEAST_S), OUTLIER * usual)
        key = (_bucket(rows), _bucket(tokens))
        self._verify[key] = seconds if key not in self._verify else usual + FADE * (seconds - usual)
        known = max(seconds - self.overhead - rows * self.of_row, LEAST_S)
        self._off[1] += FADE * (known / self._reckoned(rows, tokens) - self._off[1])

    def _odd(self, key: tuple[object, int], seconds: float, usual: float) -> bool:
        """The first of its form compiles or captures a graph, and a machine stumbles now and then: what takes far
        longer than usual counts when it does so several times in a row."""
        if seconds <= ODD * usual:
            self._doubts.pop(key, None)
            return False
        self._doubts[key] = self._doubts.get(key, 0) + 1
        return self._doubts[key] < BELIEVED


@cache
def _bucket(count: int) -> int:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    if count <= 4:
        return count
    power = 1 << (count - 1).bit_length()
    return power if count > power * 3 // 4 else power * 3 // 4


@dataclass(frozen=True, slots=True)
class Choice:
    """width: nodes per row at most where rows are padded to one width, else 0. nodes: in all. gain: tokens per second
    promised, over those of a plain pass."""

    nodes: int
    width: int
    gain: float


NONE = Choice(0, 0, 1.0)
WIDTHS = (1, 3, 7, 15, 31)
"""Nodes beside a row's last token, where a pass is a graph: with it they fill a power of two."""


def choose(survival: Sequence[list[float]], rows: int, most: int, costs: StepCosts, *, padded: bool) -> Choice:
    """survival: of each row that may draft, at least one value, in any order; rows: all that decode in this pass; most:
    nodes in all. padded: each row takes the room of the widest, as in a graph; else every node counts by itself."""
    if not survival or most <= 0:
        return NONE
    plain = rows / costs.plain(rows)
    if padded:
        gains_of, widths = _gains(survival), [width for width in WIDTHS if rows * width <= most]
        wide = bisect_left(widths, len(gains_of)) + 1  # no wider than the longest needs
        tried = [(width, gains_of[min(width, len(gains_of)) - 1], rows * width) for width in widths[:wide]]
    else:
        gains_of = list(accumulate(sorted((each for row in survival for each in row), reverse=True)))
        tried = [(nodes, gains_of[nodes - 1], nodes) for nodes in _counts(min(len(gains_of), most))]
    best, chosen = MARGIN * plain, 0
    for count, gains, nodes in tried:
        rate = (rows + gains) / costs.verify(rows, rows + nodes)
        if rate >= best and (rate > best or not chosen):
            best, chosen = rate, count
    if not chosen:
        return NONE
    if padded:
        return Choice(sum(min(len(row), chosen) for row in survival), chosen, best / plain)
    return Choice(chosen, 0, best / plain)


def _gains(survival: Sequence[list[float]]) -> list[float]:
    """What the likeliest node of every row promises, the two likeliest, and so on."""
    ranked = [sorted(row, reverse=True) for row in survival]
    return list(accumulate(map(sum, zip_longest(*ranked, fillvalue=0.0))))


def widest(rows: int, most: int, costs: StepCosts) -> int:
    """Nodes per row of the widest graph that would pay if every guess held, `most` at most; 0 where none would: then
    there is nothing to ask for."""
    plain = MARGIN / costs.plain(rows)
    pay = [w for w in WIDTHS if rows * w <= most and (w + 1) / costs.verify(rows, rows * (w + 1)) > plain]
    return pay[-1] if pay else 0


def _counts(most: int) -> list[int]:
    """Node counts worth a look: all small ones, then in steps."""
    found = [*range(1, min(most, 8) + 1)]
    while found[-1] < most:
        found.append(min(most, found[-1] + max(1, found[-1] // 4)))
    return found
