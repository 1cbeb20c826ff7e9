"""The GPU benchmark's own logic, on a CPU: its loop at the tiny shape, its shapes, its reading of a profile."""

import json

import pytest

from engines.native.profile import STEPS, Profile, WatchedRunner, Work, busy_time
from evaluation.benchmarks import engine_gpu, engine_profile, shapes
from evaluation.benchmarks.engine_cases import CASES


@pytest.mark.slow
def test_the_tiny_shape_runs_through_every_kind_of_case(tmp_path):
    assert engine_gpu.main(["--shape", "tiny", "--out", str(tmp_path), "--device", "cpu", "--commit", "abc"]) == 0
    body = json.loads((tmp_path / "engine_gpu.cpu.json").read_text())
    assert body["commit"] == "abc"
    assert body["command"] == "python -m evaluation.benchmarks.engine_gpu"
    agreement, *rows = body["rows"]
    assert (agreement["value"], agreement["ok"]) == (0, True)
    assert [row["case"].split()[1] for row in rows] == [case.kind for case in CASES["tiny"]]
    assert rows[0]["metric"] == "TPOT = (T(8) − T(1)) / 7"
    assert all(row["value"] > 0 for row in rows)


def test_a_request_that_does_not_get_its_tokens_is_no_figure():
    config, runner = engine_gpu.engine_of("tiny")
    with pytest.raises(RuntimeError, match="ended after 0 tokens"):
        engine_gpu.seconds(config, runner, [[1] * 64], 1)


@pytest.mark.parametrize(("name", "parameters"), [("llama8b", 8_030_261_248), ("qwen06b", 596_049_920)])
def test_the_shapes_are_the_published_models(name, parameters):
    assert shapes.shape(name).parameters() == parameters


def test_a_profile_counts_overlapping_work_once():
    works = [Work("gemm", 0, 40), Work("norm", 30, 60), Work("Memcpy DtoH", 100, 104), Work("gemm", 32, 36)]
    assert busy_time(works) == 64
    rows = {row.metric: row.value for row in engine_profile.rows_of("step", Profile(1.0, 0.1, works))}
    steps = STEPS
    assert rows["kernels"] == 3 / steps
    assert rows["copies and fills"] == 1 / steps
    assert rows["host gap: wall − GPU busy"] == pytest.approx(1.0 - 0.064 / steps)
    assert rows[f"{2 / steps:g} × gemm"] == 44 / steps


def test_decode_steps_are_stamped_and_prefill_is_not():
    config, runner = engine_gpu.engine_of("tiny")
    watched = WatchedRunner(runner, None)
    engine_gpu.seconds(config, watched, [[5] * 9, [6] * 11], 7)
    assert len(watched.stamps) == 6
    assert all(begun < ended for begun, ended in watched.stamps)
