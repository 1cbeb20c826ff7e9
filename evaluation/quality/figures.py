"""Numbers with their intervals, all of confidence 0.95."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from evaluation.metrics.paired import paired_bootstrap
from evaluation.metrics.stats import clopper_pearson
from evaluation.quality.results import Figure

LEVEL = 0.95
BOOTSTRAP_LEAST = 2  # clusters; of one there is no interval


def share(k: int, n: int) -> Figure:
    """k of n, independent; Clopper and Pearson's exact interval, both sides together 95 %."""
    if n == 0:
        return Figure(method="clopper_pearson")
    low, high = clopper_pearson(k, n, 1 - (1 - LEVEL) / 2)
    return Figure(value=k / n, low=low, high=high, n=n, method="clopper_pearson")


def rate(scores: Sequence[float], groups: Sequence[str]) -> Figure:
    """Mean of scores from 0 to 1. Where items hang together (of one group; "" is none), a bootstrap over groups widens
    Clopper and Pearson's interval; alone it would have no width where all items are right."""
    if not scores:
        return Figure(method="clopper_pearson")
    total = sum(scores)
    least, most = share(math.floor(total), len(scores)), share(math.ceil(total), len(scores))
    found = Figure(value=total / len(scores), low=least.low, high=most.high, n=len(scores), method=least.method)
    clusters = [("group", group) if group else ("item", place) for place, group in enumerate(groups)]
    together = mean(scores, "share", clusters) if any(groups) else Figure()
    if together.low is None or together.high is None:
        return found
    found.low, found.high = min(together.low, found.low or 0.0), max(together.high, found.high or 1.0)
    found.method = together.method
    return found


def paired_shares(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Interval of the difference of two shares of the same n items, of which `gained` are right only in the second and
    `lost` only in the first: Tango's score interval (Statistics in Medicine 17, 1998). Where no item flipped a
    bootstrap's has no width; this one leaves room for 3.7 % of 100."""

    def score(difference: float) -> float:
        middle = -gained - lost + (2 * n - gained + lost) * difference
        end = -lost * difference * (1 - difference)
        other = (math.sqrt(max(middle * middle - 8 * n * end, 0.0)) - middle) / (4 * n)
        spread = n * (2 * other + difference * (1 - difference))
        return (gained - lost - n * difference) / math.sqrt(max(spread, 1e-300))

    def crossing(wanted: float) -> float:  # the score falls as the difference rises
        low, high = -1 + 1e-12, 1 - 1e-12
        for _ in range(100):
            half = (low + high) / 2
            low, high = (half, high) if score(half) > wanted else (low, half)
        return (low + high) / 2

    quantile = NormalDist().inv_cdf((1 + LEVEL) / 2)
    return crossing(quantile), crossing(-quantile)


def mean(values: Sequence[float], unit: str, clusters: Sequence[object] | None = None) -> Figure:
    """Mean, by a bootstrap over items, or over clusters of items. No interval of a single one."""
    if not values:
        return Figure(unit=unit)
    found = paired_bootstrap([0.0] * len(values), values, clusters=clusters)
    if len(set(clusters if clusters is not None else range(len(values)))) < BOOTSTRAP_LEAST:
        return Figure(value=found.value, unit=unit, n=len(values))
    method = "bootstrap" if clusters is None else "cluster_bootstrap"
    return Figure(value=found.value, low=found.low, high=found.high, unit=unit, n=len(values), method=method)


def ratio_of_sums(sums: Sequence[float], weights: Sequence[float], clusters: Sequence[object], unit: str) -> Figure:
    """Mean per token of sums over so many tokens each; a bootstrap over clusters (documents), whose tokens hang
    together. `n` counts tokens."""
    total = sum(weights)
    if not total:
        return Figure(unit=unit)
    found = paired_bootstrap(weights, sums, ratio=True, clusters=clusters)
    if len(set(clusters)) < BOOTSTRAP_LEAST:
        return Figure(value=found.value, unit=unit, n=int(total))
    bounds = {"low": found.low, "high": found.high}
    return Figure(value=found.value, **bounds, unit=unit, n=int(total), method="cluster_bootstrap")


def exponential(figure: Figure, unit: str) -> Figure:
    """Perplexity of a mean negative log-likelihood in nats: the interval goes along, exp being monotone."""

    def raised(value: float | None) -> float | None:
        return None if value is None else math.exp(min(value, 700.0))

    return Figure(
        value=raised(figure.value),
        low=raised(figure.low),
        high=raised(figure.high),
        unit=unit,
        n=figure.n,
        method=figure.method,
    )


def plain(value: float | None, unit: str, n: int) -> Figure:
    """A number that is told without an interval."""
    return Figure(value=value, unit=unit, n=n)
