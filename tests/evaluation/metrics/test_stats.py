"""Against published values, and against what simulation says must hold."""

import math

import numpy as np
import pytest

from evaluation.metrics import stats


def test_incomplete_beta_against_known_values():
    # Closed forms: I_x(1, b) = 1-(1-x)^b, I_x(a, 1) = x^a, I_x(1/2, 1/2) = (2/pi) asin sqrt x.
    assert stats.incomplete_beta(1, 7, 0.3) == pytest.approx(1 - 0.7**7, abs=1e-13)
    assert stats.incomplete_beta(5, 1, 0.9) == pytest.approx(0.9**5, abs=1e-13)
    assert stats.incomplete_beta(0.5, 0.5, 0.2) == pytest.approx(2 / math.pi * math.asin(math.sqrt(0.2)), abs=1e-13)
    n, k, p = 1000, 17, 0.02
    direct = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
    assert stats.binomial_cdf(k, n, p) == pytest.approx(direct, abs=1e-12)


def test_clopper_pearson_against_its_definition_and_the_rule_of_three():
    lower, upper = stats.clopper_pearson(4, 1000)
    assert stats.binomial_cdf(4, 1000, upper) == pytest.approx(0.05, abs=1e-9)
    assert 1 - stats.binomial_cdf(3, 1000, lower) == pytest.approx(0.05, abs=1e-9)
    assert stats.clopper_pearson(0, 299)[1] == pytest.approx(1 - 0.05 ** (1 / 299))
    assert stats.clopper_pearson(0, 10)[0] == 0
    assert stats.clopper_pearson(10, 10)[1] == 1
    with pytest.raises(ValueError, match="k = 3 of n = 2"):
        stats.clopper_pearson(3, 2)


@pytest.mark.parametrize(("quantile", "n"), [(0.90, 29), (0.95, 59), (0.99, 299)])
def test_fewest_requests_that_certify_a_quantile(quantile, n):
    assert stats.least_n(quantile) == n
    assert stats.clopper_pearson(0, n)[1] <= 1 - quantile
    assert stats.clopper_pearson(0, n - 1)[1] > 1 - quantile


def test_ranks_of_a_quantile_cover_it_and_are_none_where_n_is_too_small():
    assert stats.quantile_ranks(367, 0.99)[1] is None
    assert stats.quantile_ranks(368, 0.99)[1] == 368
    first, last = stats.quantile_ranks(100, 0.5)
    assert (first, last) == (40, 61)  # Conover, table A3
    draws = np.sort(np.random.default_rng(1).exponential(size=(2000, 200)), axis=1)
    first, last = stats.quantile_ranks(200, 0.9)
    truth = -math.log(0.1)
    covered = np.mean((draws[:, first - 1] <= truth) & (truth <= draws[:, last - 1]))
    assert 0.94 <= covered <= 0.985


def test_students_t():
    assert stats.student_t(0.975, 10) == pytest.approx(2.228139, abs=1e-5)
    assert stats.student_t(0.975, 1) == pytest.approx(12.7062, abs=1e-3)
    assert stats.student_t(0.95, 120) == pytest.approx(1.657651, abs=1e-5)


def test_mser_cuts_a_transient_and_leaves_a_settled_series_alone():
    rng = np.random.default_rng(3)
    settled = rng.normal(10, 1, 600)
    assert stats.mser5(settled) <= 100
    began_slow = settled.copy()
    began_slow[:100] += np.linspace(40, 0, 100)
    assert 60 <= stats.mser5(began_slow) <= 150
    assert stats.mser5(np.arange(600.0)) == 300  # never settles: no more than half is cut


def test_effective_n_of_independent_and_of_correlated_values():
    rng = np.random.default_rng(4)
    noise = rng.normal(size=4000)
    assert stats.effective_n(noise) > 2500
    series = np.empty(4000)
    series[0] = 0
    for i in range(1, 4000):
        series[i] = 0.9 * series[i - 1] + noise[i]
    assert stats.effective_n(series) == pytest.approx(4000 * 0.1 / 1.9, rel=0.4)  # (1 - rho) / (1 + rho)
    assert stats.effective_n(np.ones(50)) == 50


def test_a_slope_is_sure_only_where_it_is_there():
    rng = np.random.default_rng(5)
    times = np.arange(200.0)
    found = 0
    for _ in range(200):
        noise = np.cumsum(rng.normal(size=200)) * 0.05 + rng.normal(size=200)  # a wandering level, no trend
        found += stats.slope(times, noise - np.polyval(np.polyfit(times, noise, 1), times)).rising
    assert found == 0
    rising = stats.slope(times, 0.05 * times + rng.normal(size=200))
    assert rising.rising
    assert rising.value == pytest.approx(0.05, rel=0.2)
    false_alarms = sum(stats.slope(times, rng.normal(size=200)).rising for _ in range(400))
    assert false_alarms <= 24  # 2.5 % expected; 24 of 400 is beyond 1e-4 by chance


def test_the_interval_of_a_mean_widens_with_correlation():
    rng = np.random.default_rng(6)
    noise = rng.normal(size=2000)
    walk = np.convolve(rng.normal(size=2019), np.ones(20) / math.sqrt(20), "valid")
    width = np.subtract(*stats.batch_interval(noise)[::-1])
    wide = np.subtract(*stats.batch_interval(walk)[::-1])
    assert wide > 2.5 * width
    assert stats.batch_interval(np.ones(4)) == (None, None)
