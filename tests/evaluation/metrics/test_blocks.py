"""Autocorrelated series: block lengths by theory, coverage and error rates by simulation with fixed seeds."""

import numpy as np
import pytest

from evaluation.metrics.blocks import block_bootstrap, block_length, block_ratio, ratio_of_intervals, safe_length
from evaluation.metrics.paired import Estimate


def test_a_ratio_of_intervals_needs_no_symmetry():
    """Equal intervals: no difference; narrow ones: their own ratio; p at a bound that touches 1 is 5 %."""
    first = Estimate(100.0, 90.0, 120.0)
    same = ratio_of_intervals(first, first)
    assert (same.value, same.p) == (1.0, 1.0)
    assert same.low == pytest.approx(1 / same.high)
    sharp = ratio_of_intervals(Estimate(100.0, 100.0, 100.0), Estimate(110.0, 105.0, 120.0))
    assert (sharp.value, sharp.low, sharp.high) == pytest.approx((1.1, 1.05, 1.2))
    touching = ratio_of_intervals(Estimate(100.0, 100.0, 100.0), Estimate(110.0, 100.0, 150.0))
    assert touching.low == pytest.approx(1.0)
    assert touching.p == pytest.approx(0.05)
    with pytest.raises(ValueError, match="positive and finite"):
        ratio_of_intervals(Estimate(1.0, 0.0, 2.0), first)


def autoregressive(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    noise = rng.normal(size=n + 100)
    series = np.zeros(n + 100)
    for i in range(1, n + 100):
        series[i] = phi * series[i - 1] + noise[i]
    return series[100:]


def test_block_length_grows_with_memory():
    rng = np.random.default_rng(7)
    independent = [block_length(rng.normal(size=2_000)) for _ in range(20)]
    slow = [block_length(autoregressive(rng, 2_000, 0.8)) for _ in range(20)]
    assert np.median(independent) <= 6
    # Theory for AR(1): (1.5 g²/s²)^(1/3) n^(1/3) with g/s = 2·phi/(1 - phi²): 39 blocks at phi 0.8.
    assert 25 <= np.median(slow) <= 60
    assert block_length([1.0] * 50) == 1
    with pytest.raises(ValueError, match="undefined"):
        block_ratio([0, 0, 0], [1, 1, 1])


def test_intervals_of_autocorrelated_means_hold_the_truth():
    """95 % intervals of AR(1) series: blocks come near, resampling requests one by one misses every third time."""
    rng, blocks, ones = np.random.default_rng(8), 0, 0
    for round_ in range(200):
        series = autoregressive(rng, 500, 0.6)
        held = block_bootstrap(series, resamples=300, seed=round_)
        blocks += held.low <= 0 <= held.high
        naive = block_bootstrap(series, block=1, resamples=300, seed=round_)
        ones += naive.low <= 0 <= naive.high
    assert blocks >= 175
    assert ones <= 150


def test_two_runs_of_one_law_differ_rarely():
    """Type-I rate at 5 % of the ratio of two runs whose latencies remember; a shift of 15 % is found in most."""
    rng, false, found = np.random.default_rng(9), 0, 0
    for round_ in range(200):
        first, second = (np.exp(0.2 * autoregressive(rng, 400, 0.5)) for _ in range(2))
        false += block_ratio(first, second, resamples=200, seed=round_).p < 0.05
        found += block_ratio(first, second * 1.15, quantile=0.9, resamples=200, seed=round_).p < 0.05
    assert false <= 18  # 10 expected; more has probability 0.5 %
    assert found >= 100


def test_blocks_of_a_test_are_long_enough():
    rng = np.random.default_rng(12)
    independent, slow = rng.normal(size=600), autoregressive(rng, 600, 0.9)
    assert 20 <= safe_length(independent) <= 40
    assert safe_length(slow) >= 1.9 * min(block_length(slow), 60)
    assert safe_length(independent, slow) == safe_length(slow, independent) <= 120
    assert safe_length(np.ones(3)) == 1


def test_shares_of_none_and_all():
    ones, zeros = np.ones(100), np.zeros(100)
    assert block_ratio(ones, ones, resamples=100).p == 1.0
    lost = block_ratio(ones, zeros, resamples=100)
    assert (lost.value, lost.high) == (0.0, 0.0)
    assert lost.p < 0.05
