"""`tursiops-eval quality` as people and the platform call it: endpoints from the command line, the child protocol, and
a process that is ended or killed half-way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evaluation.cli import main
from evaluation.commands import ERROR, FAIL, INCOMPLETE, PASS, UNDETERMINED
from evaluation.schema import read_result
from tests.evaluation.quality.servers import Bigram, served
from tests.evaluation.quality.suites import lines, sum_rows, sums

ROOT = Path(__file__).parents[3]


def suite(folder: Path, least: float = 0.1, count: int = 12) -> str:
    spec = {
        "name": "sums",
        "tasks": [{"kind": "rules", "name": "sums", "data": lines(folder / "sums.jsonl", sum_rows(count))}],
        "gates": [{"kind": "limit", "metric": "sums.accuracy", "at_least": least}],
        "concurrency": 1,
    }
    (folder / "suite.json").write_text(json.dumps(spec))
    return str(folder / "suite.json")


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_endpoint_and_baseline_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = Bigram(sums)
    with served(engine):
        words = ["quality", suite(tmp_path), "--url", engine.url, "--model", "bigram", "--progress"]
        assert main([*words, "text", "--out", str(tmp_path / "a")]) == PASS
        capsys.readouterr()
        assert main([*words, "json", "--out", str(tmp_path / "b"), "--baseline", str(tmp_path / "a")]) == PASS
        told = said(capsys)
        assert [each["type"] for each in told][-1] == "report"
        assert told[-1]["data"]["verdict"] == "pass"
        assert [each["value"] for each in told if each["type"] == "progress"][-1] == 1.0
        (tmp_path / "strict").mkdir()
        words[1] = suite(tmp_path / "strict", least=0.9)
        assert main([*words, "text", "--out", str(tmp_path / "c")]) == FAIL
        words[1] = suite(tmp_path / "strict", least=0.5)
        assert main([*words, "text", "--out", str(tmp_path / "d")]) == UNDETERMINED
    for name in ("result.json", "spec.json", "report.html", "gates.junit.xml", "samples/sums.jsonl"):
        assert (tmp_path / "a" / name).is_file(), name
    assert "<failure" in (tmp_path / "c" / "gates.junit.xml").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["quality"], "give a suite"),
        (["quality", "none"], "Bundled suites: basic, consistency"),
        (["quality", "basic"], "$.endpoint"),
        (["quality", "basic", "--url", "nowhere"], "$.endpoint"),
        (["quality", "release", "--url", "http://127.0.0.1:9"], "$.gates[0].baseline"),
        (["quality", "consistency", "--url", "http://127.0.0.1:9"], "$.reference"),
        (["quality", "judge", "--url", "http://127.0.0.1:9"], "$.judge"),
    ],
)
def test_what_is_missing_is_told_with_the_way_to_give_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main([*words, "--out", str(tmp_path / "out"), "--progress", "json"]) == ERROR
    (error,) = said(capsys)
    assert error["type"] == "error"
    assert told in f"{error['message']} {error['hint']}"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_keeps_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    engine = Bigram(sums)
    engine.delay_s = 0.05
    count = 60
    with served(engine):
        argv = [sys.executable, "-m", "evaluation", "quality", suite(tmp_path, count=count), "--url", engine.url]
        argv += ["--out", str(tmp_path / "out"), "--progress", "json"]
        process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("value", 0) > 0.1:
                break
        process.send_signal(number)
        process.communicate(timeout=60)
        if number is signal.SIGTERM:
            assert process.returncode == INCOMPLETE
            assert read_result((tmp_path / "out/result.json").read_bytes()).state == "incomplete"
        kept = len((tmp_path / "out/samples/sums.jsonl").read_bytes().splitlines())
        assert 0.1 * count < kept < count
        time.sleep(0.2)  # what was on its way when it died
        asked = len(engine.told)
        engine.delay_s = 0
        assert main(["quality", "--resume", str(tmp_path / "out"), "--progress", "json"]) == PASS
        assert len(engine.told) - asked in (count - kept, count - kept + 1)
    assert read_result((tmp_path / "out/result.json").read_bytes()).state == "complete"
