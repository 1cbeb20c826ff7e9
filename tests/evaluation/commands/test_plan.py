"""`tursiops-eval plan`, from records to a plan and its confirmation, as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from evaluation.benchmarks.planner_grids import grid_of
from evaluation.cli import main
from evaluation.planner import grids, util_grid
from evaluation.planner.answers import Plan
from evaluation.profile import Guesses, read_profile
from evaluation.schema import LevelResult, RequestRecord, ResultDoc, Summary

ROOT = Path(__file__).parents[3]
SHAPE = ROOT / "evaluation/benchmarks/shapes/llama8b.json"
BENCHMARK = ROOT / "docs/benchmarks/engine_gpu.h200.json"


def _records(path: Path) -> Path:
    rows = [
        {
            "api_key_id": "app", "status": 200, "prompt_tokens": 700 + index % 90, "cached_tokens": 512,
            "completion_tokens": 120 + index % 60, "started_at": 1.7e9 + index / 2,
        }
        for index in range(900)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_from_records_to_a_confirmed_plan(tmp_path, capsys):
    profile, grid, plan, result = (
        tmp_path / name for name in ("profile.json", "grid.json", "plan.json", "result.json")
    )
    slo = ["--slo", "ttft:0.95:500", "--slo", "tpot:0.95:30"]
    assert main(["plan", "profile", str(_records(tmp_path / "rows.jsonl")), *slo, "--out", str(profile)]) == 0
    assert "512 tokens × 100%" in capsys.readouterr().out
    words = ["--benchmark", str(BENCHMARK), "--case", "llama8b", "--step-tokens", "16384"]
    assert main(["plan", "calibrate", "--model", str(SHAPE), "--gpu", "h200", *words, "--out", str(grid)]) == 0
    constraints = tmp_path / "constraints.json"
    constraints.write_text(json.dumps({"gpus": ["h200"], "tp": [1], "prices": {"h200": 4.5}}))
    words = ["--grid", str(grid), "--constraints", str(constraints), "--out", str(plan)]
    assert main(["plan", "recommend", str(profile), "--model", str(SHAPE), "--name", "llama8b", *words]) == 0
    printed = capsys.readouterr().out
    assert "meets the objectives: yes; calibrated" in printed
    assert "4.50 per hour" in printed
    made = msgspec.json.decode(plan.read_bytes(), type=Plan)
    figures = {each.metric: each for each in made.choices[0].figures}
    tpot = figures["tpot_p50"].value
    assert tpot is not None
    metrics = {"tpot": Summary(unit="ms", n=1000, p50=tpot * 1.04)}
    level = LevelResult(index=0, rate=made.summary["peak"], verdict="steady", metrics=metrics)
    result.write_bytes(msgspec.json.encode(ResultDoc(id="r", kind="load", levels=[level])))
    assert main(["plan", "confirm", str(plan), str(result)]) == 0
    assert "-3.8%" in capsys.readouterr().out
    level.metrics["tpot"].p50 = tpot * 1.5
    result.write_bytes(msgspec.json.encode(ResultDoc(id="r", kind="load", levels=[level])))
    assert main(["plan", "confirm", str(plan), str(result)]) == 1


def test_what_a_load_test_s_answers_tell_of_guesses_is_in_the_profile(tmp_path):
    told = RequestRecord(index=0, intended_ns=0, output_tokens=41, accepted_tokens=20, rejected_tokens=10)
    requests, profile = tmp_path / "requests.jsonl", tmp_path / "profile.json"
    requests.write_bytes(b"\n".join([msgspec.json.encode(told)] * 2) + b"\n")
    words = ["--guessed", str(requests), "--out", str(profile)]
    assert main(["plan", "profile", str(_records(tmp_path / "rows.jsonl")), *words]) == 0
    assert read_profile(profile.read_bytes()).guesses == Guesses(tokens=2, checked=1.5)


@pytest.mark.parametrize(
    ("profile", "words"),
    [('{"name": "x"}', "arrivals"), ("no json", "profile:"), (None, "No such file")],
)
def test_what_is_wrong_is_one_line(tmp_path, capsys, profile, words):
    path = tmp_path / "profile.json"
    if profile is not None:
        path.write_text(profile)
    assert main(["plan", "recommend", str(path), "--model", str(SHAPE)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_shipped_grids_are_those_of_the_committed_benchmarks():
    shipped = {(grid.gpu, grid.model): grid for grid in grids.shipped()}
    assert set(shipped) == {("h200", "llama8b"), ("h200", "qwen06b")}
    for (gpu, model), grid in shipped.items():
        again = grid_of(gpu, BENCHMARK, model)
        assert msgspec.to_builtins(grid) == msgspec.to_builtins(again)
        assert isinstance(grid, util_grid.Grid)
