"""The largest rate that meets the objectives, as an interval: grow until one fails, then bisect in log-rate.

`next_rate` is a function of the levels so far and nothing else, so a run that was cut off goes on where it stood.
A level that is undetermined is neither end of the interval. One that is invalid (an unhealthy client) is repeated once;
invalid again, its rate is more than this client can offer, and the search stays below it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable, Sequence

from evaluation.schema import Capacity, Decision, Finding, LevelResult, Search

Measure = Callable[[float], Awaitable[LevelResult]]
SAME = 1e-6  # relative: rates that count as one
MOST_INVALID = 5
BELOW_DONE = 0.98  # of an overloaded level's completions: where its capacity is looked for first
FAR = 0.5  # of the share of misses that is allowed: an upper bound below it allows a greater step


async def search(load: Search, measure: Measure, levels: Sequence[LevelResult] = ()) -> list[LevelResult]:
    """Measure until the interval is narrow enough. `levels`: of a run that is resumed."""
    found = list(levels)
    while (rate := next_rate(load, found)) is not None:
        found.append(await measure(rate))
    return found


def next_rate(load: Search, levels: Sequence[LevelResult]) -> float | None:
    """requests/s to try next, or None: the search has ended."""
    if not levels:
        return load.low
    invalid = [level for level in levels if level.verdict == "invalid"]
    if len(levels) - len(invalid) >= load.max_levels or len(invalid) >= MOST_INVALID:
        return None
    tried, limit = decisions(levels), ceiling(levels)
    if levels[-1].verdict == "invalid" and (limit is None or (levels[-1].rate or 0.0) < limit):
        return levels[-1].rate
    if not tried:
        return limit / load.growth if limit is not None else None
    passed, failed = _rates(tried, "pass"), _rates(tried, "fail")
    if (again := _to_repeat(levels, passed, failed)) is not None:
        return again
    if not failed:
        return _grow(load, levels, max(tried), limit)
    below = [rate for rate in passed if rate < failed[0]]
    if not below:
        lowest = min(tried)
        return None if unreachable(levels) else lowest / load.growth
    return _between(load, levels, below[-1], min(failed[0], limit or math.inf), sorted(tried))


def decisions(levels: Sequence[LevelResult]) -> dict[float, Decision]:
    """Of each rate; measurements of one rate that contradict each other leave it undetermined."""
    seen: dict[float, set[Decision]] = {}
    for level in levels:
        if level.rate is not None and level.verdict != "invalid":
            seen.setdefault(level.rate, set()).add(level.decision)
    result: dict[float, Decision] = {}
    for rate, said in seen.items():
        sure = said - {"undetermined"}
        result[rate] = next(iter(sure)) if len(sure) == 1 else "undetermined"
    return result


def ceiling(levels: Sequence[LevelResult]) -> float | None:
    """requests/s that this client can't offer: the least rate at which two levels were invalid, and none valid."""
    invalid = [level.rate for level in levels if level.verdict == "invalid" and level.rate is not None]
    valid = {level.rate for level in levels if level.verdict != "invalid"}
    return min((rate for rate in invalid if invalid.count(rate) >= 2 and rate not in valid), default=None)


def unreachable(levels: Sequence[LevelResult]) -> bool:
    """Requests that were alone in the server missed, too: no rate can be low enough."""
    lowest = min((level for level in levels if level.rate is not None), key=lambda level: level.rate or 0.0)
    return lowest.decision == "fail" and lowest.counts.ok > 0 and bool(lowest.checks.get("alone_fails"))


def capacity(load: Search, levels: Sequence[LevelResult]) -> Capacity:
    """[last certified pass, first certified fail]."""
    tried = decisions(levels)
    passed, failed = _rates(tried, "pass"), _rates(tried, "fail")
    high = failed[0] if failed else None
    below = [rate for rate in passed if high is None or rate < high]
    low = below[-1] if below else None
    found = Capacity(low=low, high=high, levels=len(levels))
    if low is not None and high is not None:
        found.decision = "certified"
    elif low is not None:
        found.decision = "open_above"
    elif low is None and high is not None and unreachable(levels):
        found.decision = "unreachable"
    return found


def findings(load: Search, levels: Sequence[LevelResult]) -> list[Finding]:
    """What the search as a whole has to say."""
    answer = capacity(load, levels)
    found = []
    if answer.decision == "unreachable":
        found.append(
            Finding(
                code="slo_unreachable",
                severity="error",
                cause="Requests that were alone in the server missed the objective, too: no rate is low enough.",
                remedy="Relax the limit, shorten prompts or answers, or use faster hardware or a smaller model.",
                evidence={"lowest_rate": answer.high},
            )
        )
    elif answer.decision == "certified" and not _narrow(load, answer):
        found.append(
            Finding(
                code="search_wide",
                severity="warning",
                cause="The interval is wider than the tolerance: levels between its ends could not be decided.",
                remedy="Allow more levels or more requests in a level (max_levels, min_requests, steady.max_s).",
                evidence={"low": answer.low, "high": answer.high, "tolerance": load.tolerance, "levels": len(levels)},
            )
        )
    elif answer.decision == "undetermined" and levels:
        found.append(
            Finding(
                code="search_undetermined",
                severity="warning",
                cause="No pair of rates was certified to pass and to fail.",
                remedy="See the reasons of the levels: more requests, a longer level, or other rates are needed.",
                evidence={"low": answer.low, "high": answer.high, "levels": len(levels)},
            )
        )
    if (limit := ceiling(levels)) is not None:
        found.append(
            Finding(
                code="client_ceiling",
                severity="warning",
                cause="From this rate on the client itself is late: greater rates can't be measured with it.",
                remedy="Use more processes, or a machine of its own for the client.",
                evidence={"rate": limit},
            )
        )
    if _contradiction(decisions(levels)):
        found.append(
            Finding(
                code="non_monotone",
                severity="warning",
                cause="A rate failed although a greater one passed, and repeating both did not settle it.",
                remedy="Look for what else used the machine, and for caches that fill; the interval is the lower one.",
                evidence={"decisions": {f"{rate:g}": said for rate, said in sorted(decisions(levels).items())}},
            )
        )
    return found


def _narrow(load: Search, answer: Capacity) -> bool:
    return bool(answer.low and answer.high and answer.high / answer.low <= (1 + load.tolerance) * (1 + SAME))


def _rates(tried: dict[float, Decision], wanted: Decision) -> list[float]:
    return sorted(rate for rate, decision in tried.items() if decision == wanted)


def _contradiction(tried: dict[float, Decision]) -> bool:
    passed, failed = _rates(tried, "pass"), _rates(tried, "fail")
    return bool(passed and failed and passed[-1] > failed[0])


def _to_repeat(levels: Sequence[LevelResult], passed: list[float], failed: list[float]) -> float | None:
    """Not monotone: a rate failed below one that passed, or missed surely more often than a greater one.

    Both ends of the contradiction are measured once more.
    """
    pairs = [(low, high) for low in failed for high in passed if low < high]
    worst = {level.rate: _miss_bounds(level) for level in levels if level.rate is not None}
    pairs += [(low, high) for low in passed for high in passed if low < high and worst[low][0] > worst[high][1]]
    for pair in pairs:
        for rate in pair:
            if sum(level.rate == rate and level.verdict != "invalid" for level in levels) < 2:
                return rate
    return None


def _miss_bounds(level: LevelResult) -> tuple[float, float]:
    """Lower and upper bound of the share of misses of the objective that is missed most."""
    if not level.objectives:
        return 0.0, 1.0
    return max(one.lower for one in level.objectives), max(one.upper for one in level.objectives)


def _grow(load: Search, levels: Sequence[LevelResult], top: float, limit: float | None) -> float | None:
    """Upwards, not beyond `high`, and half way (in log-rate) to what the client can't offer."""
    if load.high is not None and top >= load.high * (1 - SAME):
        return None
    last = [level for level in levels if level.rate == top][-1]
    far = last.decision == "pass" and all(one.upper <= FAR * (1 - one.quantile) for one in last.objectives)
    begun = len({level.rate for level in levels}) > 1
    wanted = top * load.growth ** (2 if far and begun else 1)
    if limit is not None and wanted >= limit:
        if limit / top <= 1 + load.tolerance:
            return None
        wanted = math.sqrt(top * limit)
    return min(wanted, load.high) if load.high is not None else wanted


def _between(load: Search, levels: Sequence[LevelResult], low: float, high: float, tried: list[float]) -> float | None:
    if high / low <= (1 + load.tolerance) * (1 + SAME):
        return None
    inside = [rate for rate in tried if low < rate < high]
    guesses = [BELOW_DONE * level.done_rate for level in levels if level.verdict == "overloaded" and level.done_rate]
    step = 1 + load.tolerance
    for guess in guesses if not inside else ():
        if low * step < guess < high / step:
            return guess
        if abs(guess / low - 1) < SAME and low * step < high / (1 + load.tolerance / 2):
            return low * step
    points = [low, *inside, high]
    gaps = [(math.log(b / a), math.sqrt(a * b)) for a, b in itertools.pairwise(points)]
    width, middle = max(gaps)
    return middle if width > math.log(step) / 2 else None
