import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics.quantiles import Sketch, quantile, summarize

POSITIVE = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=400)


@given(POSITIVE)
def test_percentiles_rise_are_observed_and_positive(values):
    """Case 12: an unset value among them would be a 0."""
    summary = summarize(values, "ms")
    shown = [summary.min, summary.p50, summary.p90, summary.p95, summary.p99, summary.max]
    assert shown == sorted(shown)
    assert set(shown) <= set(values)
    for name, (low, high) in summary.bounds.items():
        assert low is None or low <= getattr(summary, name)
        assert high is None or high >= getattr(summary, name)


def test_a_quantile_is_the_ceil_qn_th_smallest():
    ordered = np.arange(1.0, 101.0)
    assert [quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99)] == [50, 90, 95, 99]
    assert quantile(ordered[:1], 0.99) == 1
    with pytest.raises(ValueError, match="no values"):
        quantile(ordered[:0], 0.5)


def test_nothing_measured_is_null():
    summary = summarize([], "ms")
    assert (summary.n, summary.mean, summary.p50, summary.low) == (0, None, None, None)


def test_bounds_are_null_where_the_sample_is_too_small():
    assert summarize(np.arange(1.0, 200.0), "ms").bounds["p99"][1] is None
    assert summarize(np.arange(1.0, 400.0), "ms").bounds["p99"][1] is not None


def test_the_sketch_holds_its_accuracy_over_nine_decades_and_several_parts():
    values = np.random.default_rng(1).lognormal(0, 3, 50_000)
    sketch = Sketch()
    for part in np.array_split(values, 7):
        sketch.add(part)
    sketch.add(np.zeros(10))
    ordered = np.sort(np.concatenate([values, np.zeros(10)]))
    for q in (0.0001, 0.01, 0.5, 0.9, 0.99, 0.999):
        assert sketch.quantile(q) == pytest.approx(quantile(ordered, q), rel=0.0051)
