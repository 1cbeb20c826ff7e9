"""The crossover's report, on a model that takes seconds."""

from __future__ import annotations

import pytest

from evaluation.benchmarks import swap


def test_it_prints_what_the_engine_measures_and_checks_its_choice(capsys: pytest.CaptureFixture[str]) -> None:
    swap.report("tiny", swap.runner_of("tiny", None, "cpu"))
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "tiny on cpu in float32: 256 bytes of KV cache per token"
    said = "\n".join(lines)
    for part in ("swap, out and in:", "compute again:", "crossover, from which the engine swaps:"):
        assert part in said
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == ["16"]  # what fits in 63 tokens
    assert rows[0][3] == ("swap" if float(rows[0][1]) < float(rows[0][2]) else "compute")
