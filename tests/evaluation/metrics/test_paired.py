"""Textbook values, and error rates under the null by simulation with fixed seeds."""

import math

import numpy as np
import pytest

from evaluation.metrics.paired import (
    hodges_lehmann,
    hodges_lehmann_paired,
    holm,
    mcnemar,
    paired_bootstrap,
    permutation,
    sign_flips,
    statistic,
)

# Darwin's Zea mays, crossed minus self-fertilized, eighths of an inch (Fisher, The Design of Experiments, 1935).
MAYS = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
# Hollander and Wolfe, table 4.1: water diffusion at term and at 12-26 weeks.
TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]
# Hollander and Wolfe, table 3.1: Hamilton depression scale before and after.
BEFORE = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
AFTER = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
# Efron and Tibshirani, table 2.1: survival of mice, days.
TREATED, CONTROL = [94, 197, 16, 38, 99, 141, 23], [52, 104, 146, 10, 51, 30, 40, 27, 46]


def test_mcnemar_known_values():
    assert mcnemar(9, 2) == pytest.approx(0.0654297, abs=1e-7)  # the exact2x2 package's manual
    assert mcnemar(1, 9) == pytest.approx(22 / 1024)
    assert mcnemar(0, 6) == 0.03125
    assert mcnemar(0, 0) == mcnemar(5, 5) == 1.0
    assert mcnemar(2_000, 2_300) == pytest.approx(5.1e-6, rel=0.1)  # normal approximation: z = 4.56
    with pytest.raises(ValueError, match="never negative"):
        mcnemar(-1, 2)


def test_sign_flips_is_fishers_count():
    assert sign_flips(MAYS) == 1726 / 32768
    assert sign_flips([-value for value in MAYS]) == 1726 / 32768
    assert sign_flips([*MAYS, 0, 0]) == 1726 / 32768
    assert sign_flips([0.0, 0.0]) == 1.0
    sampled = sign_flips([*MAYS, *([1, -1] * 4)], resamples=20_000, seed=3)  # too many signs to enumerate
    assert 0.04 < sampled < 0.07


def test_permutation_exact_and_sampled():
    assert permutation([1, 2, 3], [4, 5, 6]) == 0.1
    assert permutation(TREATED, CONTROL, resamples=20_000) == pytest.approx(0.281, abs=0.01)  # all 11,440 splits
    assert permutation(TREATED, CONTROL, resamples=5_000, seed=1) == pytest.approx(0.281, abs=0.02)
    assert permutation([1] * 30 + [9], [1] * 30 + [9], quantile=0.5) == 1.0


def test_hodges_lehmann_known_values():
    shift = hodges_lehmann(TERM, EARLY, level=0.96)
    assert shift.value == pytest.approx(-0.305)
    assert (shift.low, shift.high) == pytest.approx((-0.76, 0.15))
    paired = hodges_lehmann_paired(np.subtract(AFTER, BEFORE), level=0.96)
    assert paired.value == pytest.approx(-0.46)
    assert (paired.low, paired.high) == pytest.approx((-0.786, -0.010), abs=1e-9)
    assert hodges_lehmann([1, 2], [3, 4]).low == -math.inf  # two of each: no interval of 95 % exists


def test_hodges_lehmann_of_large_samples_is_that_of_small_ones(monkeypatch):
    """Bisecting on the value finds the order statistics that sorting all pairs finds."""
    rng = np.random.default_rng(5)
    one, two = rng.exponential(size=150), rng.exponential(size=130) + 0.3
    sorted_, paired = hodges_lehmann(one, two), hodges_lehmann_paired(one)
    monkeypatch.setattr("evaluation.metrics.paired.PAIRS_HELD", 0)
    for exact, bisected in ((sorted_, hodges_lehmann(one, two)), (paired, hodges_lehmann_paired(one))):
        assert (bisected.value, bisected.low, bisected.high) == pytest.approx((exact.value, exact.low, exact.high))


def test_holm_known_values():
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])  # R: p.adjust(…, "holm")
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_a_quantile_is_the_ceil_qn_th_smallest(quantile):
    for n in (1, 10, 100, 299, 1000):
        values = np.random.default_rng(n).permutation(np.arange(1, n + 1)).astype(float)
        assert statistic(values, quantile) == math.ceil(round(quantile * n, 9))


def test_paired_bootstrap_of_a_difference_agrees_with_theory():
    rng = np.random.default_rng(1)
    first = rng.normal(10, 3, 400)
    second = first + rng.normal(0.5, 1, 400)
    found = paired_bootstrap(first, second)
    half = 1.96 * (second - first).std(ddof=1) / 20
    assert found.value == pytest.approx((second - first).mean())
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=0.02)
    assert found.p is not None
    assert found.p < 0.001
    ratio = paired_bootstrap(first, second, ratio=True)
    assert ratio.value == pytest.approx(second.mean() / first.mean())
    assert 1 < ratio.low < ratio.value < ratio.high


def test_items_of_one_cluster_are_drawn_together():
    """Each prompt answered five times alike: the interval must be that of the prompts, sqrt(5) times wider."""
    rng = np.random.default_rng(2)
    first, second = rng.integers(0, 2, 60).astype(float), rng.integers(0, 2, 60).astype(float)
    prompts = paired_bootstrap(first, second)
    labels = [f"prompt {i}" for i in range(60) for _ in range(5)]
    repeated = np.repeat(first, 5), np.repeat(second, 5)
    clustered, ignored = paired_bootstrap(*repeated, clusters=labels), paired_bootstrap(*repeated)
    assert clustered.value == pytest.approx(prompts.value)
    assert clustered.high - clustered.low == pytest.approx(prompts.high - prompts.low, rel=0.06)
    assert ignored.high - ignored.low == pytest.approx((prompts.high - prompts.low) / math.sqrt(5), rel=0.06)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="match them by item"):
        paired_bootstrap([1, 2], [1])
    with pytest.raises(ValueError, match="not every value is finite"):
        permutation([1, math.nan], [1, 2])
    with pytest.raises(ValueError, match="first mean of 0"):
        paired_bootstrap([0, 0], [1, 1], ratio=True)
    with pytest.raises(ValueError, match="labels for 2 items"):
        paired_bootstrap([1, 2], [2, 3], clusters=["a"])


def test_error_rates_of_the_paired_tests_under_the_null():
    rng, rounds = np.random.default_rng(10), 400
    discordant = rng.binomial(40, 0.5, rounds)
    assert np.mean([mcnemar(int(b), 40 - int(b)) < 0.05 for b in discordant]) <= 0.06  # exact: conservative
    skewed = rng.exponential(size=(rounds, 12)) - rng.exponential(size=(rounds, 12))
    assert 0.03 <= np.mean([sign_flips(row) < 0.05 for row in skewed]) <= 0.075
    samples = rng.exponential(size=(rounds, 10))
    assert 0.02 <= np.mean([permutation(row[:5], row[5:]) < 0.05 for row in samples]) <= 0.075
    flips = rng.integers(0, 2, (rounds, 2, 100)).astype(float)
    assert 0.02 <= np.mean([paired_bootstrap(*pair, resamples=400).p < 0.05 for pair in flips]) <= 0.085


def test_holm_holds_the_family_wise_error():
    """Twenty true nulls: one of them is below 5 % in two of three families, after Holm in one of twenty."""
    rng = np.random.default_rng(11)
    families = rng.uniform(size=(2_000, 20))
    assert np.mean(families.min(axis=1) < 0.05) > 0.6
    assert 0.03 <= np.mean([min(holm(list(row))) < 0.05 for row in families]) <= 0.07
