import pytest

from evaluation.runner.figures import level_result, tolerate
from evaluation.runner.steady import Assessment
from evaluation.schema import Health, Objective, Window
from tests.evaluation.records import record

S = 1_000_000_000
E2EL = Objective(metric="e2el", limit_ms=100, quantile=0.5)


def result(records, *, verdict="steady", objectives=(E2EL,), seconds=1, **fields):
    window = Window(start_ns=0, end_ns=seconds * S, seconds=seconds)
    return level_result(records, window, Assessment(verdict), index=0, rate=1.0, objectives=objectives, **fields)


def test_counts_are_of_the_window_and_failures_stand_beside_the_figures():
    """Case 15."""
    records = [record(at, ttft=50, index=at) for at in range(-100, 900, 10)]
    records += [record(at, ttft=1, status="error", error="x", index=at) for at in range(0, 500, 50)]
    found = result(records)
    assert (found.counts.offered, found.counts.ok, found.counts.error, found.counts.warm_up) == (100, 90, 10, 10)
    assert found.metrics["e2el"].n == 90
    assert found.metrics["e2el"].min == pytest.approx(50)
    assert found.attainment == pytest.approx(0.9)
    assert found.goodput == pytest.approx(90)
    assert found.done_rate == pytest.approx(105, abs=1)  # five of before the window end in it
    assert found.objectives[0].failed == 10


@pytest.mark.parametrize(
    ("verdict", "late", "decision"),
    [
        ("steady", 0, "pass"),
        ("steady", 90, "fail"),
        ("undetermined", 0, "undetermined"),
        ("undetermined", 90, "fail"),
        ("overloaded", 0, "fail"),
    ],
)
def test_a_pass_needs_a_steady_level(verdict, late, decision):
    records = [record(at * 10, ttft=500 if at < late else 50, index=at) for at in range(100)]
    assert result(records, verdict=verdict).decision == decision


@pytest.mark.parametrize(("failed", "decision"), [(1, "pass"), (2, "fail")])
def test_without_an_objective_an_error_storm_fails(failed, decision):
    records = [record(at * 10, status="error" if at < failed else "ok", index=at) for at in range(100)]
    assert result(records, objectives=()).decision == decision
    assert result(records, objectives=(), verdict="undetermined").decision == "undetermined"


def test_an_unhealthy_client_makes_the_level_invalid_whatever_it_measured():
    records = [record(at * 10, ttft=50, index=at) for at in range(100)]
    found = result(records, health=Health(healthy=False, reasons=["cpu"]))
    assert (found.verdict, found.decision, found.reasons) == ("invalid", "undetermined", ["cpu"])


def test_a_lag_far_below_every_limit_is_tolerated_and_told():
    late = Health(healthy=False, reasons=["pacing_lag", "loop_lag"], pacing_p99_ms=30.0, loop_p99_ms=20.0)
    slow = [Objective(metric="e2el", limit_ms=5000)]
    assert tolerate(late, slow).healthy
    assert tolerate(late, slow).tolerated == ["pacing_lag", "loop_lag"]
    assert tolerate(late, [Objective(metric="e2el", limit_ms=2500)]).reasons == ["pacing_lag"]
    assert not tolerate(late, [*slow, Objective(metric="tpot", limit_ms=5000)]).healthy
    assert not tolerate(late, [Objective(metric="e2el", limit_ms=5000, start="actual")]).healthy
    assert not tolerate(late, []).healthy
    busy = Health(healthy=False, reasons=["cpu", "loop_lag"], loop_p99_ms=20.0)
    assert tolerate(busy, slow).reasons == ["cpu"]


def test_requests_that_were_alone_and_late_say_that_no_rate_is_low_enough():
    alone = [record(at * 1000, ttft=200, index=at) for at in range(20)]
    found = result(alone, seconds=20)
    assert (found.checks["alone"], found.checks["alone_fails"]) == (20, 1)
    crowded = [record(at * 100, ttft=200, index=at) for at in range(200)]
    assert result(crowded, seconds=20).checks["alone_fails"] == 0


def test_the_series_has_every_second_and_gaps_stay_gaps():
    records = [record(at, ttft=50, index=at) for at in (100, 200, 2300)]
    series = result(records, seconds=3).series
    assert series["offered"] == [2, 0, 1]
    assert series["ttft_ms"] == [pytest.approx(50), None, pytest.approx(50)]
    assert len({len(values) for values in series.values()}) == 1


def test_tokens_per_second_count_what_arrived_in_the_window():
    records = [record(-50, ttft=100, gaps=[10], tokens=[3, 4]), record(990, ttft=5, gaps=[100], tokens=[2, 9])]
    assert result(records).metrics["output_tokens_per_s"].mean == pytest.approx(9)
