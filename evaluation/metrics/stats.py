"""The statistics that verdicts rest on: binomial bounds, order statistics, the end of a transient, slopes.

Written out because scipy is no dependency; tests hold them to published values. Sources: Clopper and Pearson 1934;
Numerical Recipes 6.4 (incomplete beta function); White 1997 and Hoad, Robinson and Davies 2008 (MSER-5); Geyer 1992
(initial positive sequence); Conover, Practical Nonparametric Statistics, 3.2 (bounds of quantiles).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_TINY = 1e-300


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized I_x(a, b) for a, b > 0, to about 1e-12."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction by Lentz's method."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            result *= c * d
        if abs(c * d - 1) < 1e-14:
            return result
    raise ArithmeticError(f"incomplete beta function of a={a}, b={b}, x={x} did not converge")


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses 0, by bisection to the last bits."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def clopper_pearson(k: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Lower and upper bound of a share of which k of n were seen, each one-sided at `confidence`.

    Not whole numbers: those of an effective sample size.
    """
    if not 0 <= k <= n:
        raise ValueError(f"k = {k} of n = {n} is no share")
    alpha = 1 - confidence
    lower = 0.0 if k == 0 else _root(lambda p: incomplete_beta(k, n - k + 1, p) - alpha, 0, 1)
    upper = 1.0 if k == n else _root(lambda p: incomplete_beta(k + 1, n - k, p) - (1 - alpha), 0, 1)
    return lower, upper


def least_n(quantile: float, confidence: float = 0.95) -> int:
    """Fewest requests, none of them a miss, that certify the quantile: 29 for P90, 59 for P95, 299 for P99."""
    return math.ceil(math.log(1 - confidence) / math.log(quantile) - 1e-9)


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X <= k) for X of n with probability p."""
    if k < 0 or k >= n:
        return 0.0 if k < 0 else 1.0
    return incomplete_beta(n - k, k + 1, 1 - p)


@lru_cache(maxsize=4096)
def quantile_ranks(n: int, q: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Ranks (1-based) of the order statistics that hold the q-quantile, two-sided; None where n is too small.

    Two-sided P99 needs n = 368 for an upper rank.
    """
    tail = (1 - confidence) / 2
    low, high = 0, n  # greatest l with P(X <= l - 1) <= tail
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if binomial_cdf(middle - 1, n, q) <= tail else (low, middle - 1)
    first = low or None
    low, high = 1, n + 1  # least u with P(X >= u) <= tail
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if 1 - binomial_cdf(middle - 1, n, q) <= tail else (middle + 1, high)
    return first, low if low <= n else None


@lru_cache(maxsize=1024)
def student_t(probability: float, freedom: float) -> float:
    """Quantile of Student's t for probability > 0.5."""

    def cdf(t: float) -> float:
        return 1 - incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2

    return _root(lambda t: cdf(t) - probability, 0, 1e6)


def mser5(series: Array, batch: int = 5) -> int:
    """How many of the first values belong to the transient: the cut that leaves the least error of the mean.

    Batches of 5; never cuts more than half (a least error there means that the series had not settled), in which case
    the answer is that half. series: equally spaced or in order of arrival.
    """
    means = series[: len(series) // batch * batch].reshape(-1, batch).mean(axis=1)
    if len(means) < 4:
        return 0
    rest = np.arange(len(means), 0, -1)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    errors = (squares - sums**2 / rest) / rest**2
    return int(np.argmin(errors[: len(means) // 2 + 1])) * batch


def effective_n(series: Array) -> float:
    """How many independent values tell as much of the mean, by the initial positive sequence of autocovariances."""
    n = len(series)
    centred = series - series.mean()
    variance = float(centred @ centred) / n if n else 0.0
    if n < 4 or variance <= 1e-18 * max(1.0, float(np.abs(series).max()) ** 2):
        return float(n)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    correlations = np.fft.irfft(spectrum * np.conj(spectrum), size)[:n] / (n * variance)
    total = 1.0
    for lag in range(1, n - 1, 2):
        pair = correlations[lag] + correlations[lag + 1]
        if pair <= 0:
            break
        total += 2 * pair
    return float(min(n, max(2.0, n / max(total, 1e-9))))


@dataclass(frozen=True)
class Slope:
    """Of a least-squares line, per unit of time. `moe` = half the interval / |slope|: below 1 the sign is sure."""

    value: float
    moe: float
    n_eff: float

    @property
    def rising(self) -> bool:
        return self.value > 0 and self.moe < 1


def slope(times: Array, values: Array, confidence: float = 0.95) -> Slope:
    """Two-sided interval with the sample size corrected for the residuals' autocorrelation."""
    if len(times) < 5:
        return Slope(0.0, math.inf, float(len(times)))
    centred = times - times.mean()
    spread = float(centred @ centred)
    if spread <= 0:
        return Slope(0.0, math.inf, float(len(times)))
    value = float(centred @ values) / spread
    residuals = values - values.mean() - value * centred
    n = len(times)
    n_eff = max(3.0, effective_n(residuals))
    error = math.sqrt(float(residuals @ residuals) / max(n - 2, 1) / spread * n / n_eff)
    margin = student_t(0.5 + confidence / 2, max(1.0, n_eff - 2)) * error
    return Slope(value, margin / abs(value) if value else math.inf, n_eff)


def batch_interval(values: Array, confidence: float = 0.95) -> tuple[float | None, float | None]:
    """Two-sided interval of the mean of a correlated series in order of time; (None, None) below 5 values."""
    n = len(values)
    if n < 5:
        return None, None
    n_eff = max(2.0, effective_n(values))
    margin = student_t(0.5 + confidence / 2, n_eff - 1) * float(values.std(ddof=1)) / math.sqrt(n_eff)
    mean = float(values.mean())
    return mean - margin, mean + margin
