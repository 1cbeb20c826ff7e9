"""Calibration against a server whose latencies are a law, over real HTTP."""

from __future__ import annotations

import pytest

from evaluation.client.law import Law
from evaluation.client.servers import running
from evaluation.planner import hardware, schemes
from evaluation.planner.calibrate import CalibrationError, Recipe, measure
from evaluation.planner.model_spec import from_config
from evaluation.planner.roofline import Roof
from evaluation.planner.util_grid import fit, predict
from evaluation.schema import Endpoint
from tests.evaluation.planner import models

SMALL = Recipe(rows=(1, 4), contexts=(64,), prompts=(32, 256), repeats=1, margin=12)


async def test_times_are_the_law_s_and_make_a_grid():
    law = Law(ttft_ms=15, prompt_token_ms=0.5, itl_ms=8)
    async with running(law) as url:
        found = await measure(Endpoint(url=url), SMALL, on_step=lambda text: None)
    times = {(each.kind, each.rows or each.tokens): each for each in found.measurements}
    assert times["decode", 1].seconds == pytest.approx(8e-3, rel=0.25)
    assert times["decode", 4].seconds == pytest.approx(8e-3, rel=0.25)
    assert 64 < times["decode", 4].context < 64 + 20
    assert 15e-3 + 0.5e-3 * 256 <= times["prefill", 256].seconds < 0.25
    assert times["prefill", 256].seconds - times["prefill", 32].seconds == pytest.approx(0.5e-3 * 224, rel=0.35)
    assert 0 <= found.overhead_s < 0.1
    roof = Roof(from_config(models.SMOLLM2), hardware.gpu("cpu2"), schemes.scheme("int8"), "float32")
    grid = fit(roof, found.measurements, overhead_s=found.overhead_s, kv_dtype="float32")
    assert {point.op for point in grid.points} == {"linear", "attention_decode", "attention_prefill"}
    for each in found.measurements:
        assert predict(roof, grid, each) == pytest.approx(each.seconds, rel=0.15)


async def test_an_engine_that_fails_is_named():
    async with running(Law(failure="http_500")) as url:
        with pytest.raises(CalibrationError, match=r"http_500|token ids"):
            await measure(Endpoint(url=url), SMALL, on_step=lambda text: None)
