import numpy as np
import pytest

from evaluation.metrics.goodput import good, judge, meets, together
from evaluation.schema import Objective
from tests.evaluation.records import record

LIMIT = Objective(metric="e2el", limit_ms=100, quantile=0.99)


def many(n, late=(), failed=()):
    return [
        record(i, ttft=200 if i in late else 50, status="error" if i in failed else "ok", index=i) for i in range(n)
    ]


def test_p99_is_certified_from_299_and_never_from_fewer():
    assert judge(many(299), LIMIT).decision == "pass"
    assert judge(many(298), LIMIT).decision == "undetermined"


def test_failed_requests_are_misses_and_are_counted():
    """Case 15: however fast they failed."""
    result = judge(many(1000, failed=range(0, 1000, 25)), LIMIT)
    assert (result.k, result.n, result.failed, result.decision) == (40, 1000, 40, "fail")
    assert good(many(100, failed=[3, 4], late=[5]), [LIMIT]) == 97


def test_a_share_near_the_limit_is_undetermined():
    spread = range(0, 1000, 100)  # 10 of 1000 at P99
    result = judge(many(1000, late=spread), LIMIT)
    assert result.lower < 0.01 < result.upper
    assert result.decision == "undetermined"


def test_misses_in_one_cluster_tell_less_than_scattered_ones():
    rng = np.random.default_rng(1)
    scattered = judge(many(2000, late=set(rng.choice(2000, 40, replace=False).tolist())), LIMIT)
    clustered = judge(many(2000, late=range(700, 740)), LIMIT)
    assert scattered.k == clustered.k == 40
    assert scattered.decision == "fail"
    assert clustered.decision == "undetermined"
    assert clustered.n_eff < scattered.n_eff / 5


def test_from_which_start_is_the_objectives_choice():
    late_client = record(lag=80, ttft=50)
    assert meets(late_client, LIMIT) is False
    assert meets(late_client, Objective(metric="e2el", limit_ms=100, start="actual")) is True


def test_what_is_undefined_is_in_no_denominator():
    objective = Objective(metric="tpot", limit_ms=20, quantile=0.5)
    records = [record(ttft=5), record(ttft=5, gaps=[10]), record(ttft=5, gaps=[30])]
    result = judge(records, objective)
    assert (result.k, result.n) == (1, 2)


def test_an_answer_without_a_token_is_late_whatever_the_limit():
    empty = record(first_ns=None, chunks=[], output_tokens=0)
    assert meets(empty, LIMIT) is False
    assert meets(empty, Objective(metric="ttft", limit_ms=1e6)) is False
    assert meets(empty, Objective(metric="tpot", limit_ms=20)) is None
    assert good([empty], [LIMIT]) == 0


def test_an_itl_objective_looks_at_every_gap():
    objective = Objective(metric="itl", limit_ms=20)
    assert meets(record(gaps=[10, 19]), objective) is True
    assert meets(record(gaps=[10, 21]), objective) is False


@pytest.mark.parametrize(("ended", "met"), [(90, None), (110, False)])
def test_a_request_that_we_cut_off_is_a_miss_only_where_it_was_late(ended, met):
    one = record(status="cancelled", first_ns=None, chunks=[], end_ns=ended * 1_000_000)
    assert meets(one, LIMIT) is met


def test_all_objectives_must_pass():
    assert together(["pass", "pass"]) == "pass"
    assert together(["pass", "undetermined"]) == "undetermined"
    assert together(["undetermined", "fail"]) == "fail"
    assert together([]) == "undetermined"
