"""The written definitions, and the ways in which other tools got them wrong (cases/evaluation.md, B)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics import definitions as d
from tests.evaluation.records import record

GAPS = st.lists(st.floats(0.001, 5000), max_size=30)


@given(ttft=st.floats(0.001, 60_000), gaps=GAPS, lag=st.floats(0, 5000))
def test_gaps_are_one_fewer_than_chunks_and_sum_to_what_follows_the_first_token(ttft, gaps, lag):
    """Case 7 (vllm #7242): the first token's time is no gap."""
    one = record(ttft=ttft, gaps=gaps, lag=lag)
    assert len(d.icl(one)) == len(one.chunks) - 1
    assert sum(d.icl(one)) == pytest.approx(d.e2el(one) - d.ttft(one), abs=1e-6)
    assert sum(d.itl(one)) == pytest.approx(sum(d.icl(one)), abs=1e-6)
    assert d.ttft(one, "intended") == pytest.approx(d.ttft(one) + lag, abs=1e-5)
    assert d.e2el(one, "intended") == pytest.approx(d.e2el(one) + lag, abs=1e-5)


def test_tpot_is_per_token_of_the_usage_not_per_chunk():
    """Case 10 (evalscope #778): three chunks of four tokens."""
    one = record(ttft=100, gaps=[40, 40], tokens=[4, 4, 4])
    assert d.tpot(one) == pytest.approx(80 / 11)
    assert d.itl(one) == pytest.approx([10.0] * 8)
    assert d.tokens_per_chunk(one) == pytest.approx(4)


def test_what_is_undefined_is_none_and_never_zero():
    """Case 12 (evalscope #1694)."""
    single = record(ttft=100)
    assert d.tpot(single) is None
    assert d.tokens_per_chunk(single) is None
    never = record(status="timeout", first_ns=None, chunks=[], output_tokens=None)
    assert (d.ttft(never), d.e2el(never), d.tpot(never)) == (None, None, None)
    assert len(d.values("ttft", [never])) == 0
    untold = record(gaps=[5, 5], output_tokens=None)
    assert d.tpot(untold) is None
    assert len(d.values("output_tokens", [untold])) == 0


def test_failed_requests_have_no_latency():
    """Case 15 (guidellm #444): a fast failure must not make the figures better."""
    records = [record(ttft=100), record(ttft=1, status="error"), record(ttft=1, status="cut")]
    assert d.values("ttft", records).tolist() == [100.0]
    assert d.values("e2el", records).tolist() == [100.0]


def test_an_unknown_metric_is_named():
    with pytest.raises(KeyError, match="unknown metric 'latency'; known: ttft"):
        d.values("latency", [])
