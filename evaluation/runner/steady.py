"""Whether a level is in steady state. Only then do its percentiles say anything of the rate that was asked.

In this order (docs/evaluation.md gives the reasons and the slack for chance):
1. the transient ends where MSER-5 of TTFT* and of completions per second says so;
2. overloaded: requests in flight and TTFT* both rise for sure (interval of the slope without 0), and completions fall
   short of arrivals by more than `balance` and more than chance;
3. steady: completions balance arrivals, Little's law L = lambda W holds, and three consecutive parts agree;
4. else undetermined: the level goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from evaluation.metrics.stats import effective_n, mser5, slope
from evaluation.schema import RequestRecord, Steady

Times = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
S = 1_000_000_000  # ns
LEAST = 30  # arrivals before a slope is looked at
SAMPLES = 200  # of requests in flight over a window
RANGE_OF_THREE = 3.31  # 95 % point of the range of three standard normals (Pearson and Hartley)
NEVER = np.iinfo(np.int64).max


class Log:
    """The columns that the tests need, filled as records come.

    offsets: ns after `start_ns` of the arrivals that the schedule has placed so far, so that those which were not
    answered yet count as in flight; None (closed loop): only what has ended is known.
    """

    def __init__(self, offsets: list[int] | None = None) -> None:
        self._rows: list[tuple[int, int, int, bool]] = []  # intended, first or -1, end, ok
        self._offsets = offsets
        self._unplaced: list[int] = []  # intended ns of what no schedule placed: later turns of a session
        self.start_ns: int | None = None

    def add(self, record: RequestRecord) -> None:
        end = record.end_ns if record.end_ns is not None else NEVER
        self._rows.append(
            (record.intended_ns, -1 if record.first_ns is None else record.first_ns, end, record.status == "ok")
        )
        if self._offsets is None or record.turn > 0:
            self._unplaced.append(record.intended_ns)
            self.start_ns = record.intended_ns if self.start_ns is None else min(self.start_ns, record.intended_ns)
        elif self.start_ns is None:
            self.start_ns = record.intended_ns - self._offsets[record.index]

    def columns(self) -> Columns:
        rows = np.array(sorted(self._rows), dtype=np.int64).reshape(-1, 4)
        placed = np.array(self._offsets or [], dtype=np.int64) + (self.start_ns or 0)
        return Columns(
            arrivals=np.sort(np.concatenate([placed, np.array(self._unplaced, dtype=np.int64)])),
            intended=rows[:, 0],
            first=rows[:, 1],
            end=rows[:, 2],
            ok=rows[:, 3].astype(bool),
        )


@dataclass(frozen=True)
class Columns:
    """By rising intended start; all ns."""

    arrivals: Times
    intended: Times
    first: Times
    end: Times
    ok: npt.NDArray[np.bool_]

    def in_flight(self, at: Times) -> Array:
        """Requests whose intended start has come and that have not ended."""
        ended = np.sort(self.end)
        return (np.searchsorted(self.arrivals, at, "right") - np.searchsorted(ended, at, "right")).astype(np.float64)

    def within(self, start: int, end: int) -> Columns:
        """Requests that arrived in [start, end)."""
        chosen = (self.intended >= start) & (self.intended < end)
        placed = (self.arrivals >= start) & (self.arrivals < end)
        return Columns(
            self.arrivals[placed], self.intended[chosen], self.first[chosen], self.end[chosen], self.ok[chosen]
        )


@dataclass(frozen=True)
class Assessment:
    verdict: Literal["steady", "overloaded", "undetermined"]
    checks: dict[str, float | None] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


def columns_of(records: Iterable[RequestRecord]) -> Columns:
    log = Log()
    for record in records:
        log.add(record)
    return log.columns()


def transient_end(columns: Columns, start: int, now: int) -> int:
    """ns from which the level has settled, by MSER-5 of TTFT* and of completions per second; at most the middle."""
    seen = columns.within(start, now)
    begun = seen.first >= 0
    delays = (seen.first - seen.intended)[begun].astype(np.float64)
    cut = mser5(delays)
    settled = int(seen.intended[begun][cut]) if cut and cut < len(delays) else start
    seconds = max(0, (now - start) // S)
    if seconds >= 20:
        edges = start + np.arange(seconds + 1) * S
        done = np.diff(np.searchsorted(np.sort(columns.end), edges)).astype(np.float64)
        settled = max(settled, start + mser5(done) * S)
    return min(settled, start + (now - start) // 2)


def assess(columns: Columns, start: int, end: int, rules: Steady) -> Assessment:
    """The verdict on the window [start, end) ns, from what is known so far."""
    seen = columns.within(start, end)
    seconds = (end - start) / S
    offered = len(seen.arrivals)
    done = int(((columns.end >= start) & (columns.end < end)).sum())
    checks: dict[str, float | None] = {"offered": float(offered), "done": float(done), "seconds": seconds}
    if offered < LEAST or seconds <= 0:
        return Assessment("undetermined", checks, ["few_arrivals"])
    sampled = np.linspace(start, end, SAMPLES, endpoint=False).astype(np.int64)
    flying = columns.in_flight(sampled)
    begun = seen.first >= 0
    waiting = slope((sampled - start) / S, flying)
    delays: Array = (seen.first - seen.intended)[begun].astype(np.float64) * 1e-6
    rising = slope((seen.intended[begun] - start) / S, delays)
    checks |= {
        "in_flight_slope": waiting.value,
        "in_flight_moe": _finite(waiting.moe),
        "ttft_slope_ms": rising.value,
        "ttft_moe": _finite(rising.moe),
    }
    level = float(flying.mean())
    chance = 2 * math.sqrt(flying[0] + flying[-1])  # counts in flight scatter like Poisson's at a steady rate
    missing = offered - done
    checks |= {
        "in_flight": level,
        "balance": missing / offered,
        "balance_allowed": max(rules.balance, chance / offered),
    }
    unbalanced = abs(missing) > max(rules.balance * offered, chance)
    if waiting.rising and rising.rising and unbalanced and missing > 0:
        return Assessment("overloaded", checks, ["in_flight_rises", "ttft_rises", "balance"])
    reasons = ["balance"] if unbalanced else []
    reasons += _little(seen, level, offered / seconds, seconds, rules, checks)
    reasons += _parts(columns, start, end, rules, checks)
    return Assessment("undetermined" if reasons else "steady", checks, reasons)


def closed_loop(columns: Columns, start: int, end: int, rules: Steady) -> Assessment:
    """At a fixed concurrency nothing can pile up: only the parts must agree."""
    offered = len(columns.within(start, end).arrivals)
    done = int(((columns.end >= start) & (columns.end < end)).sum())
    checks: dict[str, float | None] = {"offered": float(offered), "done": float(done), "seconds": (end - start) / S}
    if offered < LEAST:
        return Assessment("undetermined", checks, ["few_arrivals"])
    reasons = _parts(columns, start, end, rules, checks)
    return Assessment("undetermined" if reasons else "steady", checks, reasons)


def _little(
    seen: Columns, level: float, rate: float, seconds: float, rules: Steady, checks: dict[str, float | None]
) -> list[str]:
    """|L - lambda W| / L. What began or ended outside the window makes the two differ by chance: W/T sqrt(2/L)."""
    ended = seen.end != NEVER
    if not ended.any() or level <= 0:
        checks["little"] = None
        return ["little"]
    stay = float((seen.end - seen.intended)[ended].mean()) / S
    gap = abs(level - rate * stay) / level
    allowed = max(rules.little, 2 * math.sqrt(2 / level) * min(1.0, stay / seconds), 3 / SAMPLES)
    # A sampled level has an error of its own where few are in flight.
    allowed = max(allowed, 2 * math.sqrt((1 + level) / level / SAMPLES))
    checks |= {"little": gap, "little_allowed": allowed}
    return ["little"] if gap > allowed else []


def _parts(columns: Columns, start: int, end: int, rules: Steady, checks: dict[str, float | None]) -> list[str]:
    """Consecutive parts of equal length: mean E2EL* within the tolerance (or chance), as many done as arrived."""
    edges = np.linspace(start, end, rules.windows + 1).astype(np.int64)
    parts = [columns.within(int(a), int(b)) for a, b in itertools.pairwise(edges)]
    stays = [(part.end - part.intended)[part.ok] * 1e-6 for part in parts]
    if any(len(stay) < 5 for stay in stays):
        checks["drift"] = None
        return ["few_in_a_part"]
    means = np.array([stay.mean() for stay in stays])
    scatter = np.concatenate([stay - stay.mean() for stay in stays])
    error = float(scatter.std()) / math.sqrt(max(1.0, effective_n(scatter) / rules.windows))
    drift = float((means.max() - means.min()) / means.mean())
    allowed = max(rules.window_tolerance, RANGE_OF_THREE * error / float(means.mean()))
    checks |= {"drift": drift, "drift_allowed": allowed}
    return ["drift"] if drift > allowed else []


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
