"""Figures of a result, and when one of them has become worse."""

from __future__ import annotations

import pytest
from tursiops.evaluations import figures
from tursiops.evaluations.figures import Figure

from evaluation.quality.results import Figure as Measured
from evaluation.quality.results import QualityResult, TaskResult
from evaluation.schema import Capacity, LevelResult, ResultDoc, Summary


def level(rate: float, p95: float, verdict: str = "steady", **fields) -> LevelResult:
    summary = Summary(unit="ms", n=1000, p50=p95 / 2, p95=p95, bounds={"p95": (p95 - 5, p95 + 7)})
    return LevelResult(index=0, rate=rate, verdict=verdict, metrics={"e2el": summary}, **fields)


def test_of_one_level():
    doc = ResultDoc(id="1", kind="load", levels=[level(2.0, 800.0, goodput=1.9)])
    found = figures.of(doc)
    assert found["e2el.p95"] == {"value": 800.0, "low": 795.0, "high": 807.0, "unit": "ms", "better": "lower"}
    assert found["goodput"] == {"value": 1.9, "low": None, "high": None, "unit": "req/s", "better": "higher"}
    assert "e2el.p99" not in found  # too few requests: null, and no figure


def test_levels_of_a_sweep_have_names_of_their_own_and_unsteady_ones_none():
    levels = [level(2.0, 800.0), level(2.5, 900.0, "undetermined"), level(4.0, 999.0, "overloaded")]
    found = figures.of(ResultDoc(id="1", kind="load", levels=levels))
    assert {name for name in found if name.endswith("p95")} == {"2/s e2el.p95", "4/s e2el.p95"}


def test_a_search_is_known_by_its_certified_capacity_alone():
    doc = ResultDoc(id="1", kind="search", levels=[level(2.0, 800.0)], capacity=Capacity(low=3.1, high=3.2))
    assert figures.of(doc) == {"capacity": {"value": 3.1, "low": 3.1, "high": 3.2, "unit": "req/s", "better": "higher"}}
    assert figures.of(ResultDoc(id="1", kind="search", capacity=Capacity())) == {}


def test_tasks_are_known_by_their_primary_figure():
    accuracy = {"accuracy": Measured(value=0.5, low=0.4), "n": Measured(value=3.0)}
    tasks = [
        TaskResult(name="gsm8k", kind="rules", primary="accuracy", figures=accuracy),
        TaskResult(
            name="wiki", kind="perplexity", primary="ppl", figures={"ppl": Measured(value=20, unit="perplexity")}
        ),
        TaskResult(name="cut", kind="rules", primary="accuracy", figures={"accuracy": Measured()}),
    ]
    found = figures.of(ResultDoc(id="1", kind="quality", quality=QualityResult(tasks=tasks)))
    assert {name: figure["better"] for name, figure in found.items()} == {
        "gsm8k.accuracy": "higher",
        "wiki.ppl": "lower",
    }


def figure(value: float, better: str = "lower", low: float | None = None, high: float | None = None) -> Figure:
    return Figure(value=value, low=low, high=high, unit="ms", better=better)


@pytest.mark.parametrize(
    ("base", "value", "limit"),
    [
        (figure(100.0), 103.0, None),  # 3 % is nothing, however certain
        (figure(100.0), 103.1, 103.0),
        (figure(100.0, low=90.0, high=120.0), 119.0, None),  # inside its interval
        (figure(100.0, low=90.0, high=120.0), 120.1, 120.0),
        (figure(100.0, low=99.0, high=101.0), 102.0, None),  # beyond its interval, and not by 3 %
        (figure(100.0), 50.0, None),  # better
        (figure(10.0, "higher"), 9.7, None),
        (figure(10.0, "higher"), 9.6, 9.7),
        (figure(10.0, "higher", low=8.0, high=11.0), 8.1, None),
        (figure(10.0, "higher", low=8.0, high=11.0), 7.9, 8.0),
        (figure(0.0), 0.5, 0.0),
    ],
)
def test_a_regression_is_beyond_the_interval_and_3_percent(base, value, limit):
    found = figures.regressions({"f": figure(value, base["better"])}, {"f": base})
    assert [item["limit"] for item in found] == ([] if limit is None else [pytest.approx(limit)])


def test_worst_first_and_only_what_both_have():
    now = {"a": figure(110.0), "b": figure(200.0), "new": figure(1.0)}
    before = {"a": figure(100.0), "b": figure(100.0), "old": figure(1.0)}
    found = figures.regressions(now, before)
    assert [(item["figure"], item["change"]) for item in found] == [("b", 1.0), ("a", pytest.approx(0.1))]
