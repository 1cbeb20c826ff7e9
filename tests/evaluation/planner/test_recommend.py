"""Plans: pure, ordered, with reasons and sources, and honest where nothing was measured."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from evaluation.planner import benchmark_rows, hardware, recommend, schemes, util_grid
from evaluation.planner.answers import Plan
from evaluation.planner.constraints import ConstraintError, Constraints, read_constraints
from evaluation.planner.model_spec import SpecError, from_config
from evaluation.planner.roofline import Roof
from evaluation.profile import Arrivals, BusinessProfile, Lengths, PrefixGroup
from evaluation.schema import Objective
from tests.evaluation.planner import models

ROOT = Path(__file__).parents[3]
SLO = [Objective(metric="ttft", quantile=0.95, limit_ms=1000), Objective(metric="tpot", quantile=0.95, limit_ms=50)]


def _profile(rate: float = 4.0, slo=SLO, prefix: int = 1000, lengths=((400, 200), (900, 300), (200, 120))):
    return BusinessProfile(
        name="chat", arrivals=Arrivals(rate=rate, peak_factor=2), lengths=Lengths(pairs=list(lengths)),
        groups=[PrefixGroup(prefix_tokens=prefix)] if prefix else [], slo=list(slo),
    )  # fmt: skip


@pytest.fixture(scope="module")
def grid():
    rows = benchmark_rows.read(ROOT / "docs/benchmarks/engine_gpu.h200.json", "llama8b")
    config = json.loads((ROOT / "evaluation/benchmarks/shapes/llama8b.json").read_text())
    roof = Roof(from_config(config, "llama8b"), hardware.gpu("h200"), schemes.scheme("bfloat16"), "bfloat16")
    return util_grid.fit(roof, list(rows.measurements.values()), device_name=rows.device)


def test_a_plan_is_pure_and_json(grid):
    plans = [recommend.recommend(_profile(), models.LLAMA31_8B, {"gpus": ["h200", "l40s"]}, [grid]) for _ in range(2)]
    assert plans[0] == plans[1]
    assert msgspec.json.decode(msgspec.json.encode(plans[0]), type=Plan) == plans[0]


def test_calibrated_has_values_and_uncalibrated_has_bounds(grid):
    """Case 25: a device that nobody measured is labelled, and its figures have no middle."""
    plan = recommend.recommend(_profile(), models.LLAMA31_8B, {"gpus": ["h200", "l40s"], "tp": [1]}, [grid])
    by_gpu = {choice.gpu: choice for choice in plan.choices}
    known, unknown = by_gpu["h200"], by_gpu["l40s"]
    assert (known.basis, unknown.basis) == ("calibrated", "bound_only")
    assert known.meets == "yes"
    assert unknown.meets in {"unknown", "no"}
    assert all(each.value is None and each.basis == "bound_only" for each in unknown.figures)
    for each in known.figures:
        assert each.value is not None
        assert each.low <= each.value <= each.high
        assert each.source
    assert "bound_only" in {line.code for line in unknown.reasons}
    assert plan.choices[0].gpu == "h200"
    assert plan.recommended == 0


def test_shipped_grids_need_no_asking(grid):
    config = json.loads((ROOT / "evaluation/benchmarks/shapes/llama8b.json").read_text())
    asked = {"gpus": ["h200"], "tp": [1]}
    shipped = recommend.recommend(_profile(), config, asked).choices[0]
    assert shipped.basis == "calibrated"
    points = [msgspec.structs.replace(each, util=each.util / 2) for each in grid.points]
    slower = msgspec.structs.replace(grid, points=points)
    own = recommend.recommend(_profile(), config, asked, [slower]).choices[0]
    values = [{each.metric: each.value for each in choice.figures}["tpot_p50"] for choice in (shipped, own)]
    assert values[1] > 1.5 * values[0]  # one's own grid goes first


def test_every_line_has_a_code_values_and_a_sentence(grid):
    plan = recommend.recommend(_profile(), models.LLAMA31_8B, {}, [grid])
    lines = [*plan.rejected, *plan.findings, *(line for choice in plan.choices for line in choice.reasons)]
    lines += [line for choice in plan.choices if choice.pd for line in choice.pd.reasons]
    assert len(lines) > 20
    for line in lines:
        assert line.code
        assert line.text.endswith((".", "`."))
    for choice in plan.choices:
        parts = [line.part for line in choice.memory]
        assert parts[-1] == "reserve"
        assert {"weights", "kv_floor", "activations", "graphs", "overhead"} <= set(parts)
        assert all(line.source for line in choice.memory)
        assert sum(line.bytes for line in choice.memory) <= choice.usable
        assert choice.gpus == choice.tp * choice.pp * choice.replicas


def test_70b_needs_several_of_a_small_card():
    plan = recommend.recommend(_profile(1.0), models.LLAMA31_70B, {"gpus": ["a100", "h200"]})
    a100 = [choice for choice in plan.choices if choice.gpu == "a100"]
    assert a100
    assert min(choice.tp for choice in a100) >= 2
    rejected = {(line.code, line.values.get("gpu"), line.values.get("tp")) for line in plan.rejected}
    assert ("too_small", "a100", 1) in rejected


def test_more_load_takes_more_instances(grid):
    few, many = (
        recommend.recommend(_profile(rate), models.LLAMA31_8B, {"gpus": ["h200"], "tp": [1]}, [grid]).choices[0]
        for rate in (2.0, 60.0)
    )
    assert few.replicas == 1
    assert many.replicas > 2
    assert many.meets == "yes"


def test_prices_set_the_order():
    asked = {"gpus": ["h100", "l40s"], "tp": [1], "prices": {"h100": 9.0, "l40s": 0.5}}
    cheap = recommend.recommend(_profile(0.5), models.LLAMA31_8B, asked).choices
    assert [choice.cost_per_hour for choice in cheap] == sorted(choice.cost_per_hour for choice in cheap)
    assert cheap[0].gpu == "l40s"
    dear = recommend.recommend(_profile(0.5), models.LLAMA31_8B, asked | {"prices": {"h100": 0.5, "l40s": 9.0}})
    assert dear.choices[0].gpu == "h100"


def test_an_objective_that_no_hardware_can_meet():
    impossible = [Objective(metric="tpot", quantile=0.95, limit_ms=0.1)]
    plan = recommend.recommend(_profile(slo=impossible), models.LLAMA31_70B, {})
    assert plan.recommended is None
    assert not plan.choices
    assert {"too_slow", "too_small"} <= {line.code for line in plan.rejected}
    assert "nothing_fits" in {line.code for line in plan.findings}


def test_ttft_that_queues_can_t_meet_is_no():
    tight = [Objective(metric="ttft", quantile=0.99, limit_ms=1.0)]
    plan = recommend.recommend(_profile(slo=tight), models.LLAMA31_8B, {"gpus": ["h200"], "tp": [1], "max_gpus": 4})
    assert {choice.meets for choice in plan.choices} == {"no"}
    assert plan.recommended is None
    assert "nothing_meets" in {line.code for line in plan.findings}


def _rounds(monkeypatch, slo, grid):
    """Replicas of each simulation of one choice, and that choice."""
    simulate, seen = recommend._simulate, []
    monkeypatch.setattr(recommend, "_simulate", lambda *given: seen.append(given[-1]) or simulate(*given))
    asked = {"gpus": ["h200"], "tp": [1], "choices": 1}
    return recommend.recommend(_profile(slo=slo), models.LLAMA31_8B, asked, [grid]).choices[0], seen


def test_gaps_between_tokens_are_not_promised(grid, monkeypatch):
    """Only their mean is simulated, so an objective of ITL is at most unknown, and more replicas don't change that."""
    choice, seen = _rounds(monkeypatch, [Objective(metric="itl", quantile=0.99, limit_ms=500)], grid)
    assert choice.meets == "unknown"
    assert seen == [choice.replicas]


def test_a_choice_has_the_replicas_that_were_simulated(grid, monkeypatch):
    choice, seen = _rounds(monkeypatch, [Objective(metric="ttft", quantile=0.99, limit_ms=1.0)], grid)
    assert choice.meets == "no"
    assert seen[-1] == choice.replicas
    assert len(seen) == recommend.MOST_ROUNDS


def test_both_floors_are_shown_and_eviction_is_warned_of():
    """A prefix so long that the peak holds only while it is shared."""
    profile = _profile(0.05, prefix=24_000, slo=[Objective(metric="e2el", quantile=0.95, limit_ms=90_000)])
    asked = {"gpus": ["a10"], "schemes": ["w4a16"], "tp": [1], "max_gpus": 1, "sequences": 32, "step_tokens": 2048}
    plan = recommend.recommend(profile, models.LLAMA31_8B, asked)
    floor = plan.kv_floor["bfloat16"]
    assert floor.shared < 0.2 * floor.unshared
    assert plan.choices, plan.rejected
    assert "kv_unshared_does_not_fit" in {line.code for line in plan.choices[0].reasons}


def test_tiny_answers_are_not_split():
    """Case 27, through the whole planner."""
    tiny = _profile(30.0, prefix=0, lengths=[(1024, 6)])
    plan = recommend.recommend(tiny, models.LLAMA31_8B, {"gpus": ["h100"], "tp": [1]})
    advice = plan.choices[0].pd
    assert advice is not None
    assert not advice.advised
    assert "pd_tiny_output" in {line.code for line in advice.reasons}


def test_formats_that_a_device_lacks_are_named():
    plan = recommend.recommend(_profile(1.0), models.LLAMA31_8B, {"gpus": ["a100", "h100"], "schemes": ["fp8"]})
    assert ("no_format", "a100") in {(line.code, line.values["gpu"]) for line in plan.rejected}
    assert {choice.gpu for choice in plan.choices} == {"h100"}


def test_wrong_wishes_name_their_path():
    with pytest.raises(ConstraintError, match=r"\$\.max_gpus"):
        read_constraints({"max_gpus": 0})
    with pytest.raises(ConstraintError, match=r"\$\.step_tokens.*at least 16"):
        read_constraints({"step_tokens": 15})
    assert read_constraints({"step_tokens": 16}).step_tokens == 16
    with pytest.raises(ConstraintError, match="v100"):
        read_constraints({"gpus": ["v100"]})
    with pytest.raises(ConstraintError, match="unknown field `gpu`"):
        read_constraints({"gpu": "h100"})
    with pytest.raises(ConstraintError, match="scheme: 'int3'"):
        read_constraints({"schemes": ["int3"]})
    with pytest.raises(SpecError, match="context_length"):
        recommend.recommend(_profile(prefix=100_000), models.QWEN3_32B, Constraints())
