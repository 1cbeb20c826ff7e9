"""`python -m engines.native.profile` on the demo model."""

from __future__ import annotations

import json

import pytest

from engines.native import profile
from tests.engines.weights import smollm2


@pytest.mark.slow
@pytest.mark.weights
def test_a_step_of_the_demo_model_is_a_table_and_a_timeline(tmp_path, capsys, monkeypatch):
    steps = profile.FIRST + profile.STEPS + 4  # fewer behind them than a figure needs, enough for a table
    monkeypatch.setattr(profile, "OUTPUTS", steps)
    trace = tmp_path / "step.json"
    assert (
        profile.main([str(smollm2()), "--device", "cpu", "--batch", "2", "--input", "20", "--trace", str(trace)]) == 0
    )
    table = capsys.readouterr().out
    figures = {line[:19].strip(): float(line[19:].split()[0]) for line in table.splitlines()[:5]}
    assert 0 < figures["in operations"] < figures["wall"] * 2
    assert figures["launch on the host"] > 0
    products = next(line for line in table.splitlines() if "quantized::linear_dynamic" in line)
    assert products.split()[3].endswith("%")  # of the roofline
    shares = {line.split()[0]: line.split()[3] for line in table.splitlines()[-6:-1]}  # the last names the timeline
    assert set(shares) == {"qkv", "o", "gate_up", "down", "head"}
    assert json.loads(trace.read_text())["traceEvents"]
