"""A plan's figures beside a load test's."""

from __future__ import annotations

import pytest

from evaluation.planner.answers import Choice, Figure
from evaluation.planner.confirm import ConfirmError, confirm, residual, table
from evaluation.schema import Capacity, LevelResult, ResultDoc, Summary


def _figure(metric: str, value: float | None, low: float, high: float, basis="calibrated") -> Figure:
    return Figure(metric=metric, unit="ms", low=low, value=value, high=high, basis=basis, source="test")


def _choice(*figures: Figure) -> Choice:
    return Choice(
        gpu="h200", gpu_name="H200", tp=1, pp=1, replicas=1, scheme="bfloat16", kv_dtype="bfloat16", gpus=1, fits=True,
        meets="yes", memory=[], usable=1, kv_tokens=1, figures=list(figures), reasons=[], basis="calibrated",
    )  # fmt: skip


def _result(rate: float = 8.0, verdict="steady") -> ResultDoc:
    metrics = {
        "ttft": Summary(unit="ms", n=900, p50=90, p95=200),
        "ttft_intended": Summary(unit="ms", n=900, p50=100, p95=220),
        "tpot": Summary(unit="ms", n=900, p50=21, p95=30),
    }
    level = LevelResult(index=0, rate=rate, verdict=verdict, metrics=metrics)
    return ResultDoc(id="r", kind="load", levels=[level], capacity=Capacity(low=9.0, high=9.5, decision="certified"))


def test_residuals_against_the_intended_start():
    choice = _choice(
        _figure("ttft_p50", 115, 90, 130), _figure("ttft_p95", 150, 120, 180), _figure("tpot_p50", 20, 18, 22),
        _figure("requests_per_s", 10.0, 9, 11),
    )  # fmt: skip
    found = {each.metric: each for each in confirm(choice, 8.2, _result())}
    assert found["ttft_p50"].measured == 100
    assert found["ttft_p50"].residual == pytest.approx(0.15)
    assert (found["ttft_p50"].verdict, found["ttft_p50"].inside) == ("met", True)
    assert (found["ttft_p95"].verdict, found["ttft_p95"].inside) == ("no_target", False)
    assert found["tpot_p50"].verdict == "met"
    assert found["requests_per_s"].measured == 9.0
    assert found["requests_per_s"].verdict == "missed"
    text = table(list(found.values()))
    assert "+15.0%" in text
    assert "≤ 10% missed" in text


def test_a_bound_has_no_residual_but_holds_or_not():
    found = residual(_figure("tpot_p50", None, 10, 40, "bound_only"), 21)
    assert (found.residual, found.verdict, found.inside) == (None, "no_target", True)
    assert not residual(_figure("tpot_p50", None, 10, 20, "bound_only"), 21).inside


@pytest.mark.parametrize(("rate", "verdict"), [(4.0, "steady"), (8.0, "overloaded")])
def test_another_rate_or_an_unsteady_level_confirms_nothing(rate, verdict):
    with pytest.raises(ConfirmError, match="8 requests/s"):
        confirm(_choice(_figure("tpot_p50", 20, 18, 22)), 8.0, _result(rate, verdict))
