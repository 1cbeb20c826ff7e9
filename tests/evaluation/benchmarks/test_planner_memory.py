"""What the GPU's table is made of, on the tiny shape; and the planner's judgement of such a file."""

from __future__ import annotations

import json

import pytest

from evaluation.benchmarks import planner_memory


def test_parts_of_a_working_engine():
    rows = {row.metric: row for row in planner_memory.measure("tiny")}
    assert {"weights", "kv_cache", planner_memory.WHOLE} <= set(rows)
    assert rows["weights"].value == pytest.approx(rows["weights"].peer_value, rel=0.05)
    assert rows["kv_cache"].value > 0


def test_a_file_is_judged_by_the_planner(tmp_path, capsys):
    """Llama-3.1-8B's weights are 15,317 MiB; one that measured 10 % more is off."""
    values = {"weights": 15_317.0, "kv_cache": 111_834.0, planner_memory.WHOLE: 15_317 + 111_834 + 2_600.0}
    path = tmp_path / "planner_memory.h200.json"
    for factor, code in ((1.0, 0), (1.1, 1)):
        rows = [
            {"case": "llama8b memory", "metric": metric, "value": value * factor} for metric, value in values.items()
        ]
        path.write_text(json.dumps({"device": "NVIDIA H200", "rows": rows}))
        assert planner_memory.main(["--judge", str(path)]) == code
    assert "MISSED" in capsys.readouterr().out
