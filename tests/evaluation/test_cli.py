import json

import pytest

from evaluation.cli import main
from evaluation.commands.confirm import at, rates
from evaluation.commands.search import objective
from evaluation.progress import Terminal
from evaluation.runner.run import RunError
from evaluation.schema import Capacity, Objective, ResultDoc
from evaluation.spec_errors import SpecError, read_spec


def said(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_wrong_spec_is_an_error_of_the_protocol_with_its_fix(tmp_path, capsys):
    file = tmp_path / "spec.json"
    file.write_text('{"endpoint": {"url": "http://x"}, "dataset": {"kind": "synthetic"}, "load": {"kind": "rates"}}')
    assert main(["run", str(file), "--progress", "json"]) == 2
    (error,) = said(capsys)
    assert (error["type"], error["code"]) == ("error", "invalid_spec")
    assert "$.load.kind" in error["message"]
    assert "sweep" in error["hint"]


@pytest.mark.parametrize("words", [["run"], ["run", "spec.json", "--resume", "folder"]])
def test_a_spec_or_a_folder_is_needed_and_not_both(words, capsys):
    assert main([*words, "--progress", "json"]) == 2
    assert said(capsys)[0]["code"] == "no_spec"


def test_a_file_or_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["run", str(tmp_path / "none.json"), "--progress", "json"]) == 2
    assert "none.json" in said(capsys)[0]["message"]
    assert main(["run", "--resume", str(tmp_path), "--progress", "json"]) == 2
    assert str(tmp_path) in said(capsys)[0]["message"]


def test_a_folder_with_a_result_is_not_written_over(tmp_path, capsys):
    (tmp_path / "result.json").write_text("{}")
    words = ["search", "http://127.0.0.1:9", "--slo", "p95 e2el <= 5 s", "--out", str(tmp_path), "--progress", "json"]
    assert main(words) == 2
    assert said(capsys)[-1]["code"] == "folder_used"


def test_objectives_as_people_write_them():
    assert Objective(**objective("p95 e2el <= 5 s")) == Objective(metric="e2el", quantile=0.95, limit_ms=5000)
    assert Objective(**objective("P99.9 TTFT <500ms")) == Objective(metric="ttft", quantile=0.999, limit_ms=500)
    with pytest.raises(SpecError, match="'e2el 5 s' is no objective"):
        objective("e2el 5 s")


def test_on_a_terminal_a_line_is_written_over_and_what_matters_stays(capsys):
    terminal = Terminal()
    terminal.progress(0.5, "level 1: a long text")
    terminal.log("level 1: steady")
    terminal.error("down", "nothing listens", "start it")
    text = capsys.readouterr().err
    assert text.count("\n") == 3
    assert "\rlevel 1: steady" in text
    assert "start it" in text


def test_a_search_is_confirmed_below_and_above_its_interval_with_fresh_seeds():
    spec = read_spec(
        {
            "endpoint": {"url": "http://x"},
            "dataset": {"kind": "synthetic"},
            "load": {"kind": "search", "arrivals": "gamma", "burstiness": 0.5},
            "slo": [{"metric": "e2el", "limit_ms": 1000}],
            "seed": 4,
        }
    )
    searched = ResultDoc(id="r", kind="search", spec=spec, capacity=Capacity(low=10.0, high=10.4, decision="certified"))
    asked = rates(searched)
    assert asked == {"pass": pytest.approx(9.0), "fail": pytest.approx(11.96)}
    fresh = at(spec, asked["pass"])
    assert (fresh.load.rate, fresh.load.arrivals, fresh.load.burstiness) == (asked["pass"], "gamma", 0.5)
    assert (fresh.seed, fresh.slo) == (None, spec.slo)
    with pytest.raises(RunError, match="no certified interval"):
        rates(ResultDoc(id="r", kind="search", spec=spec, capacity=Capacity(low=10.0)))
