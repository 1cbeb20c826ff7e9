"""The grid: planted utilizations come back, H200 rows that it never saw are met, and nothing measured is a bound."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from evaluation.planner import benchmark_rows, hardware, schemes, util_grid
from evaluation.planner.model_spec import from_config
from evaluation.planner.roofline import Roof, Step, decode, prefill
from evaluation.planner.simulate import Limits, Work, simulate
from evaluation.planner.util_grid import Measurement, Timing
from tests.evaluation.planner import models

ROOT = Path(__file__).parents[3]
SHAPES = ROOT / "evaluation/benchmarks/shapes"
ROWS = ROOT / "docs/benchmarks/engine_gpu.h200.json"
USED = ("decode 1 × 512", "decode 64 × 128", "decode 256 × 128", "prefill 1 × 8192", "prefill 64 × 1024")
HELD = ("decode 8 × 128", "decode 32 × 128", "decode 128 × 128")


def _roof(config, gpu: str = "h200") -> Roof:
    return Roof(from_config(config), hardware.gpu(gpu), schemes.scheme("bfloat16"), "bfloat16")


def _shape(name: str) -> Roof:
    return _roof(json.loads((SHAPES / f"{name}.json").read_text()))


def _planted(roof: Roof, each: Measurement, linear: float, decoding: float, filling: float) -> Measurement:
    spent = 0.0
    for step in each.steps():
        need = roof.need(step)
        spent += need.linear / linear + need.attention_decode / decoding + need.attention_prefill / filling
    return Measurement(**{name: getattr(each, name) for name in each.__struct_fields__} | {"seconds": spent})


def test_planted_utilizations_come_back():
    roof = _roof(models.LLAMA31_8B)
    plain = [
        *(Measurement(kind="decode", rows=rows, context=ctx, seconds=1) for rows in (1, 16, 64) for ctx in (256, 8192)),
        *(Measurement(kind="prefill", tokens=tokens, seconds=1) for tokens in (2048, 4096, 8192)),
    ]
    grid = util_grid.fit(roof, [_planted(roof, each, 0.62, 0.81, 0.45) for each in plain])
    found = {(point.op, point.rows): point.util for point in grid.points}
    assert found["attention_decode", 0] == pytest.approx(0.81, abs=0.01)
    assert found["attention_prefill", 0] == pytest.approx(0.45, abs=0.02)
    assert found["linear", 16] == pytest.approx(0.62, abs=0.01)
    timing = Timing(roof, grid)
    assert timing.basis == "calibrated"
    for step in (decode(24, 3000), prefill(3000)):
        need = roof.need(step)
        truth = need.linear / 0.62 + need.attention_decode / 0.81 + need.attention_prefill / 0.45
        assert timing.seconds(step) == pytest.approx(truth, rel=0.02)


def test_what_lies_between_measured_rows_is_met_where_launches_and_rows_add_up():
    """A CPU's prompt of 97 tokens, measured at 32 and 192: utilization itself would be 5 % off there."""
    roof = Roof(from_config(models.SMOLLM2), hardware.gpu("cpu2"), schemes.scheme("int8"), "float32")

    def truth(each: Measurement) -> float:
        need = roof.need(each.steps()[0])
        return 0.008 + 1.3 * need.linear + need.attention_decode / 0.8 + need.attention_prefill / 0.6

    plain = [Measurement(kind="prefill", tokens=tokens, seconds=1) for tokens in (32, 97, 192, 480)]
    timed = [msgspec.structs.replace(each, seconds=truth(each)) for each in plain]
    grid = util_grid.fit(roof, [each for each in timed if each.tokens != 97])
    assert util_grid.predict(roof, grid, timed[1]) == pytest.approx(timed[1].seconds, rel=0.01)


def test_steps_of_decodes_and_steps_with_prompts_have_curves_of_their_own():
    """32 rows that decode in a graph, and 32 tokens of a prompt without one."""
    roof = _roof(models.LLAMA31_8B)
    decodes = [Measurement(kind="decode", rows=rows, context=100, seconds=0.006) for rows in (1, 64)]
    prompts = [Measurement(kind="prefill", tokens=tokens, seconds=0.012) for tokens in (32, 128)]
    timing = Timing(roof, util_grid.fit(roof, [*decodes, *prompts]))
    assert timing.seconds(decode(32, 100)) == pytest.approx(0.006, rel=0.05)
    assert timing.seconds(prefill(32)) == pytest.approx(0.012, rel=0.02)
    assert timing.seconds(prefill(16)) < 0.012  # of so few tokens only decodes are known
    assert timing.seconds(decode(128, 100)) == pytest.approx(0.012, rel=0.05)


def test_a_prompt_beside_decodes_takes_longer_than_both_apart_where_it_was_measured_to():
    roof = _roof(models.LLAMA31_8B)
    apart = [
        *(Measurement(kind="decode", rows=rows, context=100, seconds=0.006) for rows in (1, 64)),
        *(Measurement(kind="prefill", tokens=tokens, seconds=tokens * 5e-5 + 0.01) for tokens in (64, 1024)),
    ]
    plain = Timing(roof, util_grid.fit(roof, apart))
    mixed = Measurement(kind="mixed", rows=8, context=100, tokens=256, seconds=1)
    step = mixed.steps()[0]
    assert (step.rows, step.keys, step.chunk, step.pairs) == (8, 800, 256, 256 * 128)
    beside = msgspec.structs.replace(mixed, seconds=plain.seconds(step) * 1.25)
    grid = util_grid.fit(roof, [*apart, beside])
    assert [point.util for point in grid.points if point.op == "mixed"] == [pytest.approx(0.8)]
    timing = Timing(roof, grid)
    assert timing.seconds(step) == pytest.approx(beside.seconds)
    for alone in (decode(8, 100), prefill(256)):
        assert timing.seconds(alone) == pytest.approx(plain.seconds(alone))
    with pytest.raises(ValueError, match="at least one timed decode or prefill"):
        util_grid.fit(roof, [beside])


def test_a_pass_that_checks_guesses_is_one_of_as_many_tokens():
    roof = _roof(models.LLAMA31_8B)
    measured = [
        Measurement(kind="decode", rows=rows, context=100, guesses=guesses, seconds=0.004 + rows * (1 + guesses) * 1e-4)
        for rows, guesses in ((1, 0.0), (4, 3.0), (64, 0.0))
    ]
    grid = util_grid.fit(roof, measured)
    assert {point.rows for point in grid.points if point.op == "linear"} == {1, 16, 64}
    assert Timing(roof, grid).seconds(Step(8, 800, guesses=16)) == pytest.approx(0.004 + 24e-4, rel=0.03)


@pytest.mark.parametrize("name", ["llama8b", "qwen06b"])
def test_h200_rows_that_were_held_out(name):
    """TPOT ≤ 10 %, throughput ≤ 10 %: calibrated with five rows of docs/benchmarks, the others predicted."""
    rows = benchmark_rows.read(ROWS, name)
    roof = _shape(name)
    grid = util_grid.fit(roof, [rows.measurements[f"{name} {case}"] for case in USED])
    for case in (*HELD, *(["long 32 × 8192"] if name == "llama8b" else [])):
        held = rows.measurements[f"{name} {case}"]
        assert util_grid.predict(roof, grid, held) == pytest.approx(held.seconds, rel=0.10), case
    work = Work(np.zeros(512), np.full(512, 1024.0), np.zeros(512), np.full(512, 128.0))
    found = simulate(work, Limits(512, benchmark_rows.STEP_TOKENS), Timing(roof, grid).seconds)
    assert found.rate == pytest.approx(rows.rates[f"{name} mixed 512 × 1024, 128 out"], rel=0.10)


def test_uncalibrated_is_a_bound_and_holds_the_truth_and_calibration_narrows_it():
    """Case 25 (aiconfigurator #1205): an unsupported GPU was predicted 45 % off as if it were known."""
    rows = benchmark_rows.read(ROWS, "llama8b")
    roof = _shape("llama8b")
    unknown = Timing(roof, None)
    grid = util_grid.fit(roof, [rows.measurements[f"llama8b {case}"] for case in USED])
    known = Timing(roof, grid)
    assert (unknown.basis, known.basis) == ("bound_only", "calibrated")
    for case in HELD:
        held = rows.measurements[f"llama8b {case}"]
        step = held.steps()[0]
        bound, interval = unknown.estimate(step), known.estimate(step)
        assert bound.low == pytest.approx(roof.sol(step))
        assert bound.low < held.seconds < bound.high
        assert interval.low < held.seconds < interval.high
        assert interval.high - interval.low < 0.35 * (bound.high - bound.low)
    assert "assumes" in unknown.source


def test_another_model_s_grid_is_transferred_with_a_wide_interval():
    rows = benchmark_rows.read(ROWS, "llama8b")
    grid = util_grid.fit(_shape("llama8b"), [rows.measurements[f"llama8b {case}"] for case in USED])
    other = _roof(models.QWEN3_8B)
    assert util_grid.choose([grid], other) is grid
    timing = Timing(other, grid)
    assert timing.basis == "transferred"
    step = timing.estimate(decode(32, 500))
    assert step.high / step.low > 1.9
    assert util_grid.choose([grid], _roof(models.LLAMA31_8B, "h100")) is None  # another device's says nothing


def test_the_exact_grid_goes_before_the_nearest():
    near, exact = (
        util_grid.fit(_roof(config), [Measurement(kind="decode", rows=1, context=10, seconds=0.01)], created_at="2026")
        for config in (models.QWEN3_8B, models.LLAMA31_8B)
    )
    assert util_grid.choose([near, exact], _roof(models.LLAMA31_8B)) is exact
    assert util_grid.choose([near, exact], _roof(models.QWEN3_06B)) is not None


def test_beyond_the_measured_rows_the_interval_is_wider():
    roof = _roof(models.LLAMA31_8B)
    measured = [Measurement(kind="decode", rows=rows, context=100, seconds=0.006) for rows in (1, 8, 32)]
    timing = Timing(roof, util_grid.fit(roof, measured))
    assert timing.width(decode(200, 100)) > timing.width(decode(16, 100))


def test_prompts_share_steps_or_take_several():
    assert util_grid.prompt_steps(1024, 64, 16_384) == [prefill(1024, 0, 16)] * 4
    long = util_grid.prompt_steps(10_000, 1, 4096)
    assert [step.chunk for step in long] == [4096, 4096, 1808]
    assert sum(step.pairs for step in long) == 10_000 * 5000


def test_a_grid_is_read_back_and_a_wrong_file_is_named(tmp_path):
    grid = util_grid.fit(_roof(models.LLAMA31_8B), [Measurement(kind="decode", rows=1, context=10, seconds=0.01)])
    path = tmp_path / "grid.json"
    path.write_bytes(msgspec.json.encode(grid))
    assert util_grid.read(path) == grid
    path.write_bytes(msgspec.json.encode(grid).replace(b'"version":1', b'"version":9'))
    with pytest.raises(ValueError, match="version 9"):
        util_grid.read(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"grid\.json.*gpu"):
        util_grid.read(path)


def test_nothing_measured_makes_no_grid():
    with pytest.raises(ValueError, match="measurements: none"):
        util_grid.fit(_roof(models.LLAMA31_8B), [])
    with pytest.raises(ValueError, match="no decode or prefill rows of 'gpt5'"):
        benchmark_rows.read(ROWS, "gpt5")
