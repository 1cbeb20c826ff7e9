"""Calibration against a server whose latencies are a law, over real HTTP."""

from __future__ import annotations

import pytest

from evaluation.client.law import Law
from evaluation.client.servers import running
from evaluation.planner import calibrate, hardware, schemes
from evaluation.planner.calibrate import CalibrationError, Recipe, measure
from evaluation.planner.model_spec import from_config
from evaluation.planner.roofline import Roof
from evaluation.planner.util_grid import fit, predict
from evaluation.schema import Endpoint
from tests.evaluation.planner import models
from tests.evaluation.records import record

SMALL = Recipe(rows=(1, 4), contexts=(64,), prompts=(32, 256), beside=(), repeats=1, margin=12)


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


def _answering(monkeypatch, records):
    """As if an engine had answered so."""

    async def send(planned, endpoint, *, on_record, **_):
        for each in records:
            on_record(each)

    monkeypatch.setattr(calibrate, "send", send)
    return calibrate._Bench(Endpoint(url="http://engine"), SMALL, "")


@pytest.mark.parametrize("behind", [0.2, 8.2])
async def test_a_step_with_a_prompt_is_timed_by_who_waits_beside_it(monkeypatch, behind):
    """Two streams, a token every 8 ms and one after 30 ms in the three steps that compute a prompt."""
    steps = [8.0] * 4 + ([30.0] + [8.0] * 3) * 3
    ends = [10 + sum(steps[: at + 1]) for at in range(len(steps)) if steps[at] == 30]
    streams = [record(ttft=10, gaps=steps, index=index) for index in range(2)]
    prompts = [record(end - 33, ttft=33 + behind, index=2 + index) for index, end in enumerate(ends)]
    early = record(0, ttft=10.1, index=9)  # sent before the streams had begun: says nothing
    found = await _answering(monkeypatch, [*prompts, early, *streams]).mixed(2, 96)
    assert (found.kind, found.rows, found.tokens) == ("mixed", 2, 96)
    assert found.seconds == pytest.approx(0.030)


async def test_streams_that_have_ended_tell_nothing_of_a_prompt(monkeypatch):
    late = record(500, ttft=30, index=1)
    with pytest.raises(CalibrationError, match=r"mixed 1 \+ 96: .*same time"):
        await _answering(monkeypatch, [record(ttft=10, gaps=[8.0] * 9, index=0), late]).mixed(1, 96)


async def test_an_engine_that_guesses_is_timed_by_passes(monkeypatch):
    """Ten passes of 12 ms tell 20 tokens; 25 guesses were checked for them."""
    told = record(ttft=10, gaps=[12.0] * 10, tokens=[1] + [2] * 10, accepted_tokens=10, rejected_tokens=15)
    found = await _answering(monkeypatch, [told]).decode(1, 64)
    assert found.seconds == pytest.approx(0.012)
    assert found.guesses == pytest.approx(2.5)
