"""What the check of the planner compares: an engine that keeps to a law is met, whenever its requests came."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.benchmarks import planner_check as check
from evaluation.planner import hardware, schemes
from evaluation.planner.calibrate import Timed
from evaluation.planner.model_spec import from_config
from evaluation.planner.roofline import Roof
from evaluation.planner.simulate import Limits, Work, arrivals, simulate
from evaluation.planner.util_grid import Measurement, Timing, fit
from evaluation.profile import Guesses
from evaluation.schema import LevelResult, RequestRecord, ResultDoc, Summary, Window
from tests.evaluation.planner import models

LIMITS = Limits(check.SEQUENCES, check.STEP_TOKENS)
GUESSES = Guesses(tokens=1.4, checked=0.9)


def _steps(factor: float = 1.0) -> list[Measurement]:
    decodes = [
        Measurement(kind="decode", rows=rows, context=96, seconds=factor * (0.010 + 0.001 * rows)) for rows in (1, 16)
    ]
    prompts = [
        Measurement(kind="prefill", tokens=tokens, seconds=factor * (0.011 + 0.0005 * tokens)) for tokens in (32, 480)
    ]
    return [*decodes, *prompts]


@pytest.fixture
def timing() -> Timing:
    roof = Roof(from_config(models.SMOLLM2), hardware.gpu("cpu2"), schemes.scheme("int8"), "float32")
    return Timing(roof, fit(roof, _steps(), overhead_s=0.002))


def _records(work: Work, timing: Timing) -> list[RequestRecord]:
    """As this machine would have answered."""
    found = simulate(work, LIMITS, timing.seconds)
    records = []
    for index, at in enumerate(work.at):
        begun = round(at * 1e9)
        first, last = (begun + round((each[index] + timing.overhead_s) * 1e9) for each in (found.ttft, found.e2el))
        records.append(
            RequestRecord(
                index=index, intended_ns=begun, sent_ns=begun, first_ns=first, chunks=[(first, 1), (last, 39)],
                end_ns=last, prompt_tokens=96, output_tokens=40, accepted_tokens=12, rejected_tokens=8,
            )
        )  # fmt: skip
    return records


def _work(at: np.ndarray, guesses: Guesses) -> Work:
    count = len(at)
    return Work(at, np.full(count, 96.0), np.zeros(count), np.full(count, 40.0), guesses)


def test_the_requests_of_a_level_are_simulated_as_they_came(timing):
    work = _work(arrivals(np.random.default_rng(5), 4.0, 120), GUESSES)
    records = _records(work, timing)
    window = Window(start_ns=records[30].intended_ns, end_ns=records[100].intended_ns, seconds=1)
    inside = records[30:100]
    ms = {
        "tpot": [(each.chunks[-1][0] - each.chunks[0][0]) / 39e6 for each in inside],
        "ttft_intended": [(each.chunks[0][0] - each.intended_ns) / 1e6 for each in inside],
        "e2el_intended": [(each.chunks[-1][0] - each.intended_ns) / 1e6 for each in inside],
    }
    metrics = {name: Summary(unit="ms", n=70, p50=float(np.median(values))) for name, values in ms.items()}
    level = LevelResult(index=0, rate=4.0, verdict="steady", window=window, metrics=metrics)
    figures = check.latency_figures(timing, ResultDoc(id="1", kind="load", levels=[level]), records, GUESSES)
    assert [name.split()[0] for name, *_ in figures] == ["TPOT", "TTFT", "E2EL"]
    for name, _, predicted, measured, _ in figures:
        assert predicted == pytest.approx(measured, rel=1e-3), name
    rows = check.rows_of("case", figures)
    assert [row.ok for row in rows if row.target is not None] == [True, True]


def test_a_burst_is_planned_with_what_the_one_before_it_told_of_guesses(timing):
    records = _records(_work(np.zeros(check.BURST), Guesses(tokens=39 / 27, checked=20 / 27)), timing)
    _, _, predicted, measured, target = check.throughput(timing, records, records)
    assert predicted == pytest.approx(measured, rel=0.01)  # the request's way to the engine is no part of the plan
    assert target == 0.10


def test_a_machine_that_slows_down_is_met_in_the_middle_and_told_of():
    before, after = (Timed(measurements=_steps(factor), overhead_s=0.001 * factor, spread=0.02) for factor in (1, 1.2))
    middle = check.between(before, after)
    assert [each.seconds for each in middle.measurements] == pytest.approx([each.seconds for each in _steps(1.1)])
    assert middle.overhead_s == pytest.approx(0.0011)
    drift, spread = check.machine_rows("case", before, after)
    assert (drift.value, spread.value) == (pytest.approx(20), pytest.approx(2))
