"""Intervals of a series in time, as the latencies of one run: a queue has a memory, so values depend on each other.

What is resampled are blocks of neighbours. Sources: Politis and White 2004 with the correction of Patton, Politis and
White 2009 (block length); Efron and Tibshirani, An Introduction to the Bootstrap, 8.6; Zou and Donner 2008 (MOVER).
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from evaluation.metrics.paired import RESAMPLES, Array, Estimate, Series, chunks, finite, percentiles, statistic


def block_length(series: Series) -> int:
    """Length of a circular block that balances bias and variance of the mean (Politis and White's automatic choice).
    1 for independent values; at most a third of the series."""
    values = finite(series, "series")
    n = values.size
    centred = values - values.mean()
    if n < 8 or not centred.any():
        return 1
    most = min(n - 1, math.ceil(math.sqrt(n)) + 5)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[: 2 * most + 1] / n
    correlation = covariance / covariance[0]
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    limit = 2 * math.sqrt(math.log10(n) / n)
    small = np.abs(correlation[1:]) < limit
    last = next((lag for lag in range(most) if small[lag : lag + quiet].all()), most)
    band = min(2 * last, 2 * most, n - 1)
    lags = np.arange(1, band + 1)
    taper = np.clip(2 * (1 - lags / band), 0, 1) if band else np.zeros(0)
    tapered = taper * covariance[1 : band + 1]
    slope, power = 2 * float((lags * tapered).sum()), float(covariance[0] + 2 * tapered.sum())
    if slope <= 0 or power <= 0:
        return 1
    length = (1.5 * slope**2 / power**2) ** (1 / 3) * n ** (1 / 3)
    return int(max(1, min(math.ceil(length), n // 3, math.ceil(3 * math.sqrt(n)))))


def block_draws(
    series: Array, quantile: float | None, *, block: int | None, resamples: int, rng: np.random.Generator
) -> Array:
    """Mean or quantile of `resamples` circular-block resamples of a series: [resamples]."""
    n = series.size
    length = block or block_length(series)
    steps, parts = np.arange(length), []
    for rows in chunks(resamples, n):
        starts = rng.integers(0, n, (rows, math.ceil(n / length), 1))
        drawn = ((starts + steps) % n).reshape(rows, -1)[:, :n]
        parts.append(statistic(series[drawn], quantile))
    return np.concatenate(parts)


def block_bootstrap(
    series: Series,
    *,
    quantile: float | None = None,
    block: int | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Mean (or a quantile) of an autocorrelated series in order of time, with its interval."""
    values = finite(series, "series")
    draws = block_draws(values, quantile, block=block, resamples=resamples, rng=np.random.default_rng(seed))
    return percentiles(float(statistic(values, quantile)), draws, level, None)


def block_ratio(
    first: Series,
    second: Series,
    *,
    quantile: float | None = None,
    block: int | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Mean (or quantile) of the second series over that of the first, both autocorrelated and not paired.
    ValueError where the first's is not positive: such a metric has no ratio."""
    one, two = finite(first, "first"), finite(second, "second")
    base = float(statistic(one, quantile))
    if base <= 0:
        raise ValueError(f"a ratio to {base} is undefined")
    rng = np.random.default_rng(seed)
    below = block_draws(one, quantile, block=block, resamples=resamples, rng=rng)
    above = block_draws(two, quantile, block=block, resamples=resamples, rng=rng)
    value = float(statistic(two, quantile)) / base
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = above / below
    draws = draws[np.isfinite(draws)]
    estimate = percentiles(value, draws, level, None)
    return replace(estimate, p=_normal(value, draws))


def ratio_of_intervals(first: Estimate, second: Estimate) -> Estimate:
    """Second over first, of positive values that are known by their 95 % intervals alone (MOVER on logarithms: Zou and
    Donner 2008). The intervals need not be symmetric. ValueError where an end is not positive or not finite."""
    ends = [
        math.log(end) if 0 < end < math.inf else math.nan for e in (first, second) for end in (e.value, e.low, e.high)
    ]
    if not all(map(math.isfinite, ends)):
        raise ValueError("a ratio of intervals needs ends that are positive and finite")
    base, base_low, base_high, other, other_low, other_high = ends
    change = other - base
    low = change - math.hypot(other - other_low, base_high - base)
    high = change + math.hypot(other_high - other, base - base_low)
    # As wide as the side that looks at "no difference".
    side = (change - low if change > 0 else high - change) / NormalDist().inv_cdf((1 + first.level) / 2)
    p = 2 * NormalDist().cdf(-abs(change) / side) if side > 0 else float(change == 0)
    return Estimate(math.exp(change), math.exp(low), math.exp(high), first.level, p)


def _normal(ratio: float, draws: Array) -> float:
    """p of a ratio of 1, the logarithm's error being normal: not bounded by the number of draws, as Holm over many
    figures needs."""
    positive = draws[draws > 0]
    if ratio <= 0 or positive.size < 2:
        return 0.0 if ratio != 1 else 1.0
    spread = float(np.log(positive).std(ddof=1))
    if spread == 0:
        return 1.0 if ratio == 1 else 0.0
    return 2 * NormalDist().cdf(-abs(math.log(ratio)) / spread)
