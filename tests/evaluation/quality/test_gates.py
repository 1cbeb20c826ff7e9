"""Gates on figures and on paired items: each decision for its reason, and never a pass for what was not measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evaluation.metrics.paired import holm, mcnemar
from evaluation.quality.gates import decide
from evaluation.quality.results import Figure, GateResult, QualityResult, Sample, TaskResult
from evaluation.quality.suite import AnyGate, Baseline, Limit
from evaluation.schema import ResultDoc


def written(folder: Path, scores: dict[str, list[float]], primary: str = "accuracy", **task: Any) -> QualityResult:
    """A run's folder with one task per name."""
    found = QualityResult()
    for name, values in scores.items():
        path = folder / "samples" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = [Sample(id=str(at), prompt=f"question {at}", score=value) for at, value in enumerate(values)]
        path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in samples))
        fields = {"items": len(values), "measured": len(values), "state": "complete", "kind": "rules", **task}
        figure = Figure(value=sum(values) / len(values), n=len(values))
        figures = {primary: figure}
        one = TaskResult(name=name, primary=primary, figures=figures, samples=f"samples/{name}.jsonl", **fields)
        found.tasks.append(one)
    doc = ResultDoc(id="x", kind="quality", quality=found)
    (folder / "result.json").write_bytes(msgspec.json.encode(doc))
    return found


def against(
    tmp_path: Path, before: list[float], now: list[float], primary: str = "accuracy", **gate: Any
) -> GateResult:
    written(tmp_path / "before", {"t": before}, primary)
    found = written(tmp_path / "now", {"t": now}, primary)
    gates: list[AnyGate] = [Baseline(metric=f"t.{primary}", **gate)]
    (decided,) = decide(gates, found, tmp_path / "now", tmp_path, "before")
    return decided


def right(count: int, of: int) -> list[float]:
    return [1.0] * count + [0.0] * (of - count)


def test_the_same_answers_are_not_inferior(tmp_path: Path) -> None:
    decided = against(tmp_path, right(60, 100), right(60, 100), margin=0.04)
    assert (decided.decision, decided.code, decided.blocks) == ("pass", "not_inferior", False)
    assert (decided.right_to_wrong, decided.wrong_to_right, decided.p) == (0, 0, 1.0)
    assert decided.low == pytest.approx(-0.037, abs=5e-4)
    few = against(tmp_path, right(6, 10), right(6, 10), margin=0.04)
    assert few.decision == "undetermined", "ten items without a flip show nothing of 4 %"


def test_a_loss_beyond_the_margin_fails(tmp_path: Path) -> None:
    decided = against(tmp_path, right(90, 100), right(60, 100), margin=0.02)
    assert (decided.decision, decided.right_to_wrong, decided.wrong_to_right) == ("fail", 30, 0)
    assert decided.p == mcnemar(0, 30)
    assert decided.value == 0.6
    assert decided.baseline == 0.9
    assert decided.low is not None
    assert decided.high is not None
    assert decided.low < -0.3 < decided.high < -0.02


def test_equal_scores_hide_flips_and_few_items_decide_nothing(tmp_path: Path) -> None:
    now = [*([0.0] * 3), *([1.0] * 10), *([0.0] * 7)]
    decided = against(tmp_path, right(10, 20), now, margin=0.02)
    assert decided.decision == "undetermined"
    assert decided.blocks
    assert decided.value == decided.baseline == 0.5
    assert (decided.right_to_wrong, decided.wrong_to_right) == (3, 3)


def test_a_ratio_of_nine_tenths(tmp_path: Path) -> None:
    assert against(tmp_path, right(800, 1000), right(790, 1000), ratio=0.9).decision == "pass"
    assert against(tmp_path, right(800, 1000), right(640, 1000), ratio=0.9).decision == "fail"


def test_a_loss_is_better_when_it_is_lower(tmp_path: Path) -> None:
    before = [3.0 + 0.1 * math.sin(n) for n in range(40)]
    worse, better = [value + 0.05 for value in before], [value - 0.05 for value in before]
    assert against(tmp_path, before, worse, "nll", margin=0.01).decision == "fail"
    assert against(tmp_path, before, better, "nll", margin=0.01).decision == "pass"
    assert against(tmp_path, before, worse, "nll", margin=0.1).decision == "pass"
    assert against(tmp_path, before, worse, "nll", ratio=0.99).decision == "fail"
    assert against(tmp_path, before, better, "nll", ratio=0.99).decision == "pass"


def test_holm_over_all_baseline_gates(tmp_path: Path) -> None:
    before = {name: right(50, 100) for name in ("a", "b", "c")}
    now = {"a": right(50, 100), "b": right(42, 100), "c": right(44, 100)}
    written(tmp_path / "before", before)
    found = written(tmp_path / "now", now)
    gates: list[AnyGate] = [Baseline(metric=f"{name}.accuracy", margin=0.02) for name in now]
    decided = decide(gates, found, tmp_path / "now", tmp_path, "before")
    raw = [1.0, mcnemar(0, 8), mcnemar(0, 6)]
    assert [each.p for each in decided] == raw
    assert [each.p_adjusted for each in decided] == holm(raw)
    assert decided[2].p_adjusted == pytest.approx(2 * raw[2])


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        ({"scores": None}, {}, "no_baseline"),
        ({"scores": right(5, 10)}, {"state": "incomplete", "measured": 9}, "incomplete"),
        ({"scores": right(5, 10), "state": "incomplete"}, {}, "no_baseline"),
        ({"scores": right(5, 9)}, {}, "other_items"),
        ({"scores": right(5, 10), "dataset": {"sha256": "other"}}, {}, "other_items"),
    ],
)
def test_what_can_not_be_compared_is_an_error_and_blocks(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], code: str
) -> None:
    scores = before.pop("scores")
    if scores is not None:
        written(tmp_path / "before", {"t": scores}, **before)
    found = written(tmp_path / "now", {"t": right(5, 10)}, **now)
    (decided,) = decide([Baseline(metric="t.accuracy", margin=0.5)], found, tmp_path / "now", tmp_path, "before")
    assert (decided.decision, decided.code, decided.blocks) == ("error", code, True)
    assert decided.reason


def test_limits_by_the_end_of_the_interval(tmp_path: Path) -> None:
    found = QualityResult(
        tasks=[
            TaskResult(
                name="t",
                kind="perplexity",
                state="complete",
                figures={
                    "perplexity": Figure(value=10.0, low=9.0, high=11.0, unit="perplexity"),
                    "kl_p99": Figure(value=0.2, unit="nats"),
                },
            )
        ]
    )
    gates: list[AnyGate] = [
        Limit(metric="t.perplexity", at_most=12.0),
        Limit(metric="t.perplexity", at_most=10.5),
        Limit(metric="t.perplexity", at_most=8.0),
        Limit(metric="t.perplexity", at_most=10.5, by="value"),
        Limit(metric="t.kl_p99", at_most=1.0),
        Limit(metric="t.kl_p99", at_most=1.0, by="value"),
    ]
    decided = decide(gates, found, tmp_path, tmp_path, "")
    assert [each.decision for each in decided] == ["pass", "undetermined", "fail", "pass", "undetermined", "pass"]
    assert decided[4].code == "no_interval"
