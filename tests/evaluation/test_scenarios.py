import pytest

from evaluation.scenarios import SCENARIOS, dataset, objectives, score
from evaluation.schema import LevelResult, ObjectiveResult, ResultDoc, Summary
from evaluation.spec_errors import SpecError, read_spec


def spec(name, **changes):
    return read_spec(
        {
            "endpoint": {"url": "http://x"},
            "dataset": dataset(name),
            "load": {"kind": "rate", "rate": 1},
            "scenario": name,
            **changes,
        }
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_is_a_valid_spec_whose_weights_sum_to_one(name):
    scenario = SCENARIOS[name]
    found = spec(name)
    assert objectives(found) == scenario.slo
    assert sum(scenario.weights.values()) == pytest.approx(1)
    assert set(scenario.weights) == {one.metric for one in scenario.slo} | {"attainment"}


def test_the_specs_own_objectives_come_first_and_a_closed_loop_counts_from_the_actual_start():
    own = spec("rag", slo=[{"metric": "tpot", "limit_ms": 9}])
    assert [one.metric for one in objectives(own)] == ["tpot"]
    closed = spec("rag", load={"kind": "concurrency", "concurrency": 4})
    assert {one.start for one in objectives(closed)} == {"actual"}


def test_an_unknown_scenario_is_refused_by_name():
    with pytest.raises(SpecError, match=r"\$\.scenario: unknown scenario 'chat'.*customer_chat"):
        spec("", scenario="chat")


def measured(ttft, decision):
    judged = [
        ObjectiveResult(metric=metric, limit_ms=limit, quantile=0.99, start="intended", k=0, n=1000)
        for metric, limit in (("ttft", 1000.0), ("e2el", 10_000.0))
    ]
    metrics = {
        "ttft_intended": Summary(unit="ms", n=1000, p99=ttft),
        "e2el_intended": Summary(unit="ms", n=1000, p99=5000.0),
    }
    level = LevelResult(
        index=0, rate=2.0, verdict="steady", decision=decision, metrics=metrics, objectives=judged, attainment=1.0
    )
    return ResultDoc(id="r", kind="load", levels=[level], verdict=decision)


def test_a_score_never_hides_the_verdict():
    good = score(spec("customer_chat"), measured(500.0, "pass"))
    assert (good["value"], good["counts"], good["verdict"]) == (100.0, True, "pass")
    late = score(spec("customer_chat"), measured(1250.0, "fail"))
    assert late["value"] == pytest.approx(100 * (0.5 * 0.8 + 0.3 + 0.2))
    assert (late["counts"], late["verdict"]) == (False, "fail")
    assert score(spec(""), measured(500.0, "pass")) == {}
