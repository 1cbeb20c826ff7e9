"""The benchmark of the API process's streams runs, for each API."""

from __future__ import annotations

import pytest

from evaluation.benchmarks import stream_cpu


def test_every_case_is_served_and_costs_something(capsys: pytest.CaptureFixture[str]) -> None:
    stream_cpu.main(["--streams", "2", "--tokens", "30", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == [name.split(",")[0] for name in stream_cpu.CASES]


def test_over_http_a_client_reads_all(capsys: pytest.CaptureFixture[str]) -> None:
    stream_cpu.main(["chat", "--streams", "2", "--tokens", "5", "--rounds", "1", "--http"])
    assert "CPU per token" in capsys.readouterr().out
