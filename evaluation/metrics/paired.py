"""Tests and intervals for two versions that were measured: is the difference real, and how large is it?

Every function takes plain arrays, draws from a seed that the caller gives, and is two-sided. Differences are "second
minus first" and ratios "second over first" throughout. What was asked of both (a question, a document) is paired;
requests of two load runs are not, nor are they independent: blocks.py. Many tests at once are corrected by `holm`.

Sources: McNemar 1947; Efron and Tibshirani, An Introduction to the Bootstrap, chapters 8, 13, 15, 16; Hodges and
Lehmann 1963; Hollander and Wolfe, Nonparametric Statistical Methods, sections 3.2, 3.3, 4.2, 4.3; Holm 1979.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Series = Sequence[float] | Array
RESAMPLES = 10_000
CHUNK = 2_000_000  # numbers held at a time while resampling: 16 MB
PAIRS_HELD = 4_000_000  # pairwise differences that Hodges-Lehmann sorts; above, it bisects on their value


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds the truth with probability `level`; `p` tests "no difference"."""

    value: float
    low: float
    high: float
    level: float = 0.95
    p: float | None = None


def finite(series: Series, name: str, least: int = 1) -> Array:
    """A list of numbers as an array. ValueError where it holds fewer than `least`, or one that is not finite."""
    array = np.asarray(series, dtype=np.float64)
    if array.ndim != 1 or array.size < least:
        raise ValueError(f"{name}: a list of at least {least} numbers is needed, this one has shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: not every value is finite; leave out what was not measured, and count it")
    return array


def _pair(first: Series, second: Series) -> tuple[Array, Array]:
    one, two = finite(first, "first"), finite(second, "second")
    if one.size != two.size:
        raise ValueError(f"paired values differ in number ({one.size} and {two.size}): match them by item first")
    return one, two


def statistic(samples: Array, quantile: float | None) -> Array:
    """Mean (None) or quantile over the last axis; the quantile is an observed value, the ceil(q·n)-th smallest."""
    if quantile is None:
        return np.asarray(samples.mean(axis=-1))
    rank = min(max(math.ceil(round(quantile * samples.shape[-1], 9)), 1), samples.shape[-1]) - 1
    return np.asarray(np.partition(samples, rank, axis=-1)[..., rank])


def percentiles(value: float, draws: Array, level: float, null: float | None) -> Estimate:
    """Percentile interval of the draws; p by inverting it: the widest level whose interval leaves `null` out."""
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    p = None
    if null is not None:
        below, above = int((draws <= null).sum()), int((draws >= null).sum())
        p = min(1.0, 2 * (1 + min(below, above)) / (1 + draws.size))
    return Estimate(value, float(low), float(high), level, p)


# Paired: the same items asked of both versions.


def mcnemar(first_only: int, second_only: int) -> float:
    """Exact p that right-to-wrong and wrong-to-right are equally likely; the counts are those of discordant items."""
    if first_only < 0 or second_only < 0:
        raise ValueError(f"counts of discordant items are never negative: {first_only}, {second_only}")
    n, least = first_only + second_only, min(first_only, second_only)
    total, term = 0, 1
    for k in range(least + 1):
        total += term
        term = term * (n - k) // (k + 1)
    return float(min(1.0, 2 * total / 2**n))


def sign_flips(differences: Series, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Permutation p that paired differences are as likely of either sign (Fisher); exact up to `resamples` signs."""
    values = finite(differences, "differences")
    values = values[values != 0]  # a tie keeps its value whichever its sign
    if values.size == 0:
        return 1.0
    seen, slack = abs(values.sum()), 1e-12 * float(np.abs(values).sum())
    if 2**values.size <= max(resamples, 2**15):
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= seen - slack).mean())
    rng, hits = np.random.default_rng(seed), 0
    for rows in chunks(resamples, values.size):
        signs = rng.integers(0, 2, (rows, values.size), dtype=np.int8) * 2 - 1
        hits += int((np.abs(signs @ values) >= seen - slack).sum())
    return (1 + hits) / (1 + resamples)


def paired_bootstrap(
    first: Series,
    second: Series,
    *,
    ratio: bool = False,
    clusters: Sequence[object] | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Difference (or ratio) of the means of paired values, resampling items; `clusters`: items that belong together
    (several answers to one prompt) are drawn together. For "student/teacher ≥ 0.90" (non-inferiority) read `low` of a
    ratio. ValueError where the first mean is 0 in a ratio."""
    one, two = _pair(first, second)
    weight = np.ones(one.size)
    if clusters is not None:
        if len(clusters) != one.size:
            raise ValueError(f"clusters: {len(clusters)} labels for {one.size} items")
        labels: dict[object, int] = {}
        group = np.array([labels.setdefault(label, len(labels)) for label in clusters])
        one, two, weight = (np.bincount(group, values).astype(np.float64) for values in (one, two, weight))
    if ratio and one.sum() == 0:
        raise ValueError("a ratio to a first mean of 0 is undefined: ask for the difference")
    rng, parts = np.random.default_rng(seed), []
    for rows in chunks(resamples, one.size):
        drawn = rng.integers(0, one.size, (rows, one.size))
        ones, twos = one[drawn].sum(axis=1), two[drawn].sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts.append(twos / ones if ratio else (twos - ones) / weight[drawn].sum(axis=1))
    draws = np.concatenate(parts)
    draws = draws[np.isfinite(draws)]  # a draw without a single success of the first has no ratio
    value = two.sum() / one.sum() if ratio else (two.sum() - one.sum()) / weight.sum()
    return percentiles(float(value), draws, level, 1.0 if ratio else 0.0)


def hodges_lehmann_paired(differences: Series, level: float = 0.95) -> Estimate:
    """Pseudo-median of paired differences (median of Walsh averages), interval by the signed-rank distribution."""
    values = np.sort(finite(differences, "differences"))
    n = values.size
    total = n * (n + 1) // 2

    def count(limit: float) -> int:
        ordered = int(np.searchsorted(values, 2 * limit - values, side="right").sum())
        return (ordered + int((values <= limit).sum())) // 2

    held = None
    if total <= PAIRS_HELD:
        rows, columns = np.triu_indices(n)
        held = np.sort((values[rows] + values[columns]) / 2)
    rank = _signed_rank(n, (1 - level) / 2)
    return _order_statistics(held, count, (float(values[0]), float(values[-1])), total, rank, level)


# Not paired: two samples, independent within each.


def permutation(
    first: Series, second: Series, *, quantile: float | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """p that both samples come of one distribution, by the difference of means (or of a quantile); exact where all
    splits number at most `resamples`. One value per run: requests of a run are not exchangeable."""
    one, two = finite(first, "first"), finite(second, "second")
    pooled, n = np.concatenate([one, two]), one.size
    seen = abs(float(statistic(two, quantile) - statistic(one, quantile)))
    slack = 1e-12 * float(np.abs(pooled).max())

    def hits(order: npt.NDArray[np.int64]) -> int:
        drawn = pooled[order]
        apart = statistic(drawn[:, n:], quantile) - statistic(drawn[:, :n], quantile)
        return int((np.abs(apart) >= seen - slack).sum())

    splits = math.comb(pooled.size, n)
    if splits <= resamples:
        everyone = range(pooled.size)
        orders = [[*chosen, *(i for i in everyone if i not in chosen)] for chosen in combinations(everyone, n)]
        return hits(np.array(orders)) / splits
    rng, total = np.random.default_rng(seed), 0
    for rows in chunks(resamples, pooled.size):
        total += hits(rng.permuted(np.tile(np.arange(pooled.size), (rows, 1)), axis=1))
    return (1 + total) / (1 + resamples)


def hodges_lehmann(first: Series, second: Series, level: float = 0.95) -> Estimate:
    """Shift of the second sample over the first: median of all pairwise differences, interval by Mann-Whitney's
    distribution. Infinite bounds: the samples are too small for any interval of this level."""
    one, two = np.sort(finite(first, "first")), np.sort(finite(second, "second"))
    total = one.size * two.size

    def count(limit: float) -> int:
        return int(np.searchsorted(two, one + limit, side="right").sum())

    held = np.sort((two[None, :] - one[:, None]).ravel()) if total <= PAIRS_HELD else None
    ends = (float(two[0] - one[-1]), float(two[-1] - one[0]))
    return _order_statistics(held, count, ends, total, _mann_whitney(one.size, two.size, (1 - level) / 2), level)


def _order_statistics(
    held: Array | None,
    count: Callable[[float], int],
    ends: tuple[float, float],
    total: int,
    rank: int,
    level: float,
) -> Estimate:
    """Median and the rank-th values from either end of `total` numbers: `held`, sorted, or known by counts below."""

    def at(k: int) -> float:  # k from 1
        if held is not None:
            return float(held[k - 1])
        low, high = ends
        while low < (middle := low + (high - low) / 2) < high:
            if count(middle) >= k:
                high = middle
            else:
                low = middle
        return high

    median = (at((total + 1) // 2) + at(total // 2 + 1)) / 2
    if rank < 1:
        return Estimate(median, -math.inf, math.inf, level)
    return Estimate(median, at(rank), at(total + 1 - rank), level)


def _mann_whitney(n: int, m: int, tail: float) -> int:
    """The largest k with P(U ≤ k − 1) ≤ tail: exact to 40 values a side, the normal approximation beyond."""
    if max(n, m) > 40:
        spread = NormalDist().inv_cdf(1 - tail) * math.sqrt(n * m * (n + m + 1) / 12)
        return math.floor(n * m / 2 - spread)
    ways = [1] + [0] * (n * m)  # coefficients of the Gaussian binomial: how many orders give each U
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            ways[u] -= ways[u - m - i]
        for u in range(i, n * m + 1):
            ways[u] += ways[u - i]
    return _largest(ways, math.comb(n + m, n), tail)


def _signed_rank(n: int, tail: float) -> int:
    """The largest k with P(V ≤ k − 1) ≤ tail: exact to 100 differences, the normal approximation beyond."""
    if n > 100:
        spread = NormalDist().inv_cdf(1 - tail) * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return math.floor(n * (n + 1) / 4 - spread)
    ways = [1] + [0] * (n * (n + 1) // 2)
    for i in range(1, n + 1):
        for v in range(len(ways) - 1, i - 1, -1):
            ways[v] += ways[v - i]
    return _largest(ways, 2**n, tail)


def _largest(ways: list[int], total: int, tail: float) -> int:
    below = 0
    for k, count in enumerate(ways):
        below += count
        if below > tail * total:
            return k
    return len(ways)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of each test, in the order given: below 0.05 means that the family-wise error stays below 5 %."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def chunks(resamples: int, width: int) -> Iterator[int]:
    """How many resamples to hold at a time, until all are drawn."""
    step = max(1, CHUNK // max(1, width))
    for done in range(0, resamples, step):
        yield min(step, resamples - done)
