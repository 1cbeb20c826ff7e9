"""The loading benchmark: a model that it makes is loaded by the real processes, and each phase has its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.benchmarks import loading


@pytest.mark.slow
def test_phases_follow_each_other_to_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loading.main(["--shape", "tiny", "--rounds", "1", "--folder", str(tmp_path), "--out", str(tmp_path / "out")])
    table = capsys.readouterr().out
    for phase in ("imports of the model", "weights", "KV cache, warm-up", "first token", "most resident"):
        assert phase in table
    assert (tmp_path / "out" / "loading.h200.json").is_file()
