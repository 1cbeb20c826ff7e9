"""`tursiops-eval compare`: exit codes, JSON and the page."""

import json

from evaluation.cli import main
from evaluation.commands import ERROR, FAIL, PASS, UNDETERMINED
from tests.evaluation.report.comparison.test_compare import run_of


def test_exit_codes_and_outputs(tmp_path, capsys):
    base = str(run_of(tmp_path / "base", seed=1, n=200))
    slow = str(run_of(tmp_path / "slow", seed=2, n=200, slower=1.2))
    page, told = tmp_path / "page.html", tmp_path / "told.json"
    assert main(["compare", base, slow, "--html", str(page), "--json", str(told), "--language", "zh"]) == FAIL
    assert "slow against base" in capsys.readouterr().out
    assert '<html lang="zh">' in page.read_text()
    found = json.loads(told.read_text())
    assert found["pairs"][0]["comparable"] is True
    assert main(["compare", base, slow, "--threshold", "0.9"]) == PASS
    other = str(run_of(tmp_path / "other", seed=3, n=60, definitions=2))
    assert main(["compare", base, other, "--json", "-"]) == UNDETERMINED
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["pairs"][0]["notes"][0]["code"] == "definitions_differ"
    assert main(["compare", base, str(tmp_path / "nothing")]) == ERROR
    assert "neither a folder" in capsys.readouterr().err
