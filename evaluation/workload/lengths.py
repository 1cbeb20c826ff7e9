"""Numbers of tokens (or turns) drawn by a `Length`."""

from __future__ import annotations

import math

import numpy as np

from evaluation.schema import Length


def draw(length: Length, random: np.random.Generator) -> int:
    """At least 1, within [low, high]. A lognormal has the given mean and stdev itself, not those of its logarithm."""
    if length.distribution == "fixed":
        value = length.mean
    elif length.distribution == "histogram":
        weights = np.array(length.weights or [1.0] * len(length.values))
        return int(random.choice(length.values, p=weights / weights.sum()))
    elif length.distribution == "uniform":
        high = length.high if length.high is not None else max(length.low, round(2 * length.mean) - length.low)
        return int(random.integers(length.low, high + 1))
    elif length.distribution == "normal" or length.stdev == 0:
        value = random.normal(length.mean, length.stdev)
    else:
        sigma2 = math.log1p((length.stdev / length.mean) ** 2)
        value = random.lognormal(math.log(length.mean) - sigma2 / 2, math.sqrt(sigma2))
    return int(min(max(round(value), length.low), length.high if length.high is not None else math.inf))
