"""A whole suite against a server whose every answer is known: figures, gates, errors, and what a cut run keeps."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.quality import endpoint, rules
from evaluation.quality.checks import Checker
from evaluation.quality.run import QualityRun
from evaluation.quality.sets import SetError
from evaluation.quality.suite import read_suite
from evaluation.schema import read_result
from evaluation.spec_errors import SpecError
from tests.evaluation.quality.servers import BOS, Bigram, served
from tests.evaluation.quality.suites import TEXT, lines, quiet, run, sum_rows, sums, task
from tests.tiny_models import write_safetensors


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked again is asked at once."""
    monkeypatch.setattr(endpoint, "FIRST_WAIT_S", 0.01)


def test_a_business_set_is_scored_and_gated(tmp_path: Path) -> None:
    engine = Bigram(sums)
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [{"kind": "rules", "name": "sums", "data": lines(tmp_path / "sums.jsonl", sum_rows(12))}],
            "gates": [
                {"kind": "limit", "metric": "sums.accuracy", "at_least": 0.2},
                {"kind": "limit", "metric": "sums.accuracy", "at_least": 0.9},
                {"kind": "limit", "metric": "sums.accuracy", "at_least": 0.5},
                {"kind": "limit", "metric": "sums.accuracy", "at_least": 0.5, "by": "value"},
                {"kind": "limit", "metric": "sums.recall", "at_least": 0.5, "informative": True},
            ],
        }
        doc = run(spec, tmp_path)
    assert doc.state == "complete"
    figure = task(doc, "sums").figures["accuracy"]
    assert figure.value == 0.5
    assert figure.low == pytest.approx(0.2109, abs=1e-4)  # Clopper and Pearson of 6 in 12
    assert figure.high == pytest.approx(0.7891, abs=1e-4)
    assert doc.quality is not None
    assert [gate.decision for gate in doc.quality.gates] == ["pass", "fail", "undetermined", "pass", "error"]
    assert [gate.blocks for gate in doc.quality.gates] == [False, True, True, False, False]
    assert doc.verdict == "fail"
    samples = [json.loads(line) for line in (tmp_path / "out/samples/sums.jsonl").read_text().splitlines()]
    assert [each["id"] for each in samples] == [f"s{n}" for n in range(12)]
    assert samples[7]["reason"] == "its last number is 10, not 14"


def test_perplexity_is_what_the_model_says(tmp_path: Path) -> None:
    engine = Bigram()
    (tmp_path / "text.txt").write_text(TEXT)
    base = {"kind": "perplexity", "data": "text.txt", "window": 50, "windows": 8}
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [{**base, "name": "bare"}, {**base, "name": "begun", "bos": "tokenizer"}],
        }
        doc = run(spec, tmp_path)
    for name, first, room in (("bare", [], 50), ("begun", [BOS], 49)):
        windows = [[*first, *TEXT.encode()[at : at + room]] for at in range(0, 8 * room, room)]
        losses = [-engine.rows[ids[:-1], ids[1:]].sum() for ids in map(np.array, windows)]
        found = task(doc, name)
        assert found.figures["perplexity"].value == pytest.approx(math.exp(sum(losses) / (8 * 49)))
        low, high = found.figures["nll"].low, found.figures["nll"].high
        assert low is not None
        assert high is not None
        assert low < sum(losses) / (8 * 49) < high
        assert found.policy["bos_ids"] == first
        assert found.policy["tokenizer_bos"] == [BOS]


def test_choices_and_the_alarm_at_chance_level(tmp_path: Path) -> None:
    """A model of bytes knows nothing of the questions; one whose gold is what it holds likeliest is no alarm."""
    engine = Bigram()
    rng = np.random.default_rng(3)
    rows = []
    for number in range(40):
        choices = [chr(97 + int(c)) for c in rng.choice(26, 4, replace=False)]
        best = max(range(4), key=lambda at: engine.rows[32, ord(choices[at])])  # after the space
        rows.append({"id": number, "prompt": f"{number}?", "choices": choices, "gold": best})
    blind = [{**row, "gold": (row["gold"] + 1 + number % 4) % 4} for number, row in enumerate(rows)]
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [
                {"kind": "choices", "name": "known", "data": lines(tmp_path / "known.jsonl", rows)},
                {"kind": "choices", "name": "blind", "data": lines(tmp_path / "blind.jsonl", blind)},
            ],
        }
        doc = run(spec, tmp_path)
    assert task(doc, "known").figures["accuracy"].value == 1.0
    assert task(doc, "blind").figures["accuracy"].value == 0.25
    alarms = [finding.evidence["task"] for finding in doc.findings if finding.code == "chance_level"]
    assert alarms == ["blind"]


def test_a_run_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    engine = Bigram(sums)
    engine.delay_s = 0.02
    spec: dict[str, Any] = {
        "tasks": [{"kind": "rules", "name": "sums", "data": lines(tmp_path / "sums.jsonl", sum_rows(30))}],
        "gates": [{"kind": "limit", "metric": "sums.accuracy", "at_least": 0.05}],
        "concurrency": 2,
    }

    async def cut_short() -> None:
        going = asyncio.ensure_future(
            QualityRun(read_suite(spec), tmp_path, tmp_path / "out", lambda share, text: seen.append(share)).run()
        )
        while len(seen) < 7:
            await asyncio.sleep(0.005)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going

    seen: list[float] = []
    with served(engine):
        spec["endpoint"] = {"url": engine.url}
        asyncio.run(cut_short())
        doc = read_result((tmp_path / "out/result.json").read_bytes())
        kept = task(doc, "sums").measured
        assert doc.state == "incomplete"
        assert 7 <= kept < 30
        assert doc.quality is not None
        assert doc.quality.gates[0].code == "incomplete"
        assert doc.verdict == "invalid"
        with (tmp_path / "out/samples/sums.jsonl").open("a") as file:
            file.write('{"id": "s29", "fing')  # a kill in the middle of a line
        asked = len(engine.told)
        again = run(spec, tmp_path)
        assert len(engine.told) - asked == 30 - kept
        assert again.id == doc.id
        assert again.state == "complete"
        assert again.verdict == "pass"
        spec["tasks"][0]["temperature"] = 0.5  # other answers: nothing that was kept holds
        run(spec, tmp_path)
        assert len(engine.told) - asked == 30 - kept + 30


def test_items_without_answer_are_in_no_figure_and_make_the_gate_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rule explodes on its answer."""
    monkeypatch.setattr(rules, "Checker", lambda: Checker(limit_s=0.3))
    engine = Bigram(sums)
    rows = [*sum_rows(5), {"id": "bad", "prompt": "1+1", "rule": "regex", "expected": "^(.*.*.*.*)*X$"}]
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [{"kind": "rules", "name": "sums", "data": lines(tmp_path / "sums.jsonl", rows)}],
            "gates": [{"kind": "limit", "metric": "sums.accuracy", "at_least": 0.1}],
        }
        doc = run(spec, tmp_path)
    found = task(doc, "sums")
    assert (found.errors, found.measured, found.figures["accuracy"].n) == (1, 5, 5)
    assert doc.verdict == "invalid"
    assert "items_without_answer" in [finding.code for finding in doc.findings]


def test_a_task_whose_items_all_fail_is_given_up(tmp_path: Path) -> None:
    engine = Bigram(sums)
    engine.fault = "400"
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [{"kind": "rules", "name": "sums", "data": lines(tmp_path / "sums.jsonl", sum_rows(40))}],
            "concurrency": 2,
        }
        doc = run(spec, tmp_path)
    assert "too_many_errors" in [finding.code for finding in doc.findings]
    assert len(engine.told) <= 8 + 2  # a fifth of 40, and what was on its way
    assert task(doc, "sums").figures["accuracy"].value is None


@pytest.mark.parametrize(
    ("fault", "code"), [("500", "endpoint_failed"), ("new_style", "wrong_logprobs"), ("bos", "wrong_logprobs")]
)
def test_an_endpoint_that_breaks_the_contract_is_named_39_41(tmp_path: Path, fault: str, code: str) -> None:
    """lm-evaluation-harness #1411, #1949 (500 or another shape) and #4158 (`logprobs.content`)."""
    engine = Bigram()
    engine.fault = fault
    (tmp_path / "text.txt").write_text(TEXT)
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [{"kind": "perplexity", "name": "text", "data": "text.txt", "window": 50, "windows": 2}],
        }
        doc = run(spec, tmp_path)
    assert [finding.code for finding in doc.findings] == [code]
    assert doc.state == "incomplete"


def test_a_tokenizer_of_a_file_takes_the_endpoints_place(tmp_path: Path) -> None:
    """Bytes are tokens there, too: but for the pairs that it joins."""
    write_safetensors(tmp_path / "model", bos=True)
    (tmp_path / "text.txt").write_text("abab cdcd " * 30)
    engine = Bigram()
    base = {"kind": "perplexity", "name": "text", "data": "text.txt", "window": 20, "windows": 2}
    with served(engine):
        spec = {"endpoint": {"url": engine.url, "tokenizer": str(tmp_path / "model")}, "tasks": [base]}
        doc = run(spec, tmp_path)
        spec["endpoint"] = {"url": engine.url, "tokenizer": str(tmp_path / "text.txt")}
        broken = run(spec, tmp_path, "broken")
    assert task(doc, "text").policy["tokenizer_bos"] == [257]
    assert engine.told[0]["prompt"][0][:2] == [256, 256]  # ab, ab
    assert [finding.code for finding in broken.findings] == ["no_tokenizer"]


def test_an_endpoint_that_is_down_ends_the_run_with_its_address(tmp_path: Path) -> None:
    spec = {
        "endpoint": {"url": "http://127.0.0.1:9", "model": "x"},
        "tasks": [
            {"kind": "rules", "name": name, "data": lines(tmp_path / "sums.jsonl", sum_rows(3))} for name in ("a", "b")
        ],
    }
    doc = run(spec, tmp_path)
    assert [finding.code for finding in doc.findings] == ["endpoint_down"]
    assert "127.0.0.1:9" in doc.findings[0].cause


def test_a_key_is_read_from_its_variable_and_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUALITY_TEST_KEY", "s3cret")
    engine = Bigram(sums)
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url, "api_key_env": "QUALITY_TEST_KEY"},
            "tasks": [{"kind": "rules", "name": "sums", "data": lines(tmp_path / "sums.jsonl", sum_rows(3))}],
        }
        assert run(spec, tmp_path).state == "complete"
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    monkeypatch.delenv("QUALITY_TEST_KEY")
    assert [finding.code for finding in run(spec, tmp_path, "again").findings] == ["no_key"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"endpoint": None}, "$.endpoint"),
        ({"tasks": []}, "$.tasks"),
        ({"tasks": [{"kind": "ruless", "name": "a"}]}, "$.tasks[0].kind"),
        ({"tasks": [{"kind": "rules", "name": "a", "dta": "x"}]}, "$.tasks[0].dta"),
        ({"gates": [{"kind": "limit", "metric": "b.accuracy", "at_least": 1}]}, "$.gates[0].metric"),
        ({"gates": [{"kind": "limit", "metric": "a.accuracy"}]}, "$.gates[0]"),
        ({"gates": [{"kind": "baseline", "metric": "a.accuracy", "margin": 0.1}]}, "$.gates[0].baseline"),
        ({"tasks": [{"kind": "judge", "name": "a", "data": "x"}]}, "$.judge"),
        ({"tasks": [{"kind": "consistency", "name": "a", "data": "x"}]}, "$.reference"),
    ],
)
def test_a_suite_that_can_not_run_names_the_path(tmp_path: Path, changes: dict[str, Any], path: str) -> None:
    spec = {
        "endpoint": {"url": "http://127.0.0.1:9"},
        "tasks": [{"kind": "rules", "name": "a", "data": "x"}],
        **changes,
    }
    with pytest.raises(SpecError) as told:
        asyncio.run(QualityRun(read_suite(spec), tmp_path, tmp_path / "out", quiet).run())
    assert told.value.path == path


def test_a_wrong_row_stops_the_run_before_the_first_question(tmp_path: Path) -> None:
    engine = Bigram(sums)
    with served(engine):
        spec = {
            "endpoint": {"url": engine.url},
            "tasks": [
                {"kind": "rules", "name": "good", "data": lines(tmp_path / "good.jsonl", sum_rows(3))},
                {"kind": "rules", "name": "bad", "data": lines(tmp_path / "bad.jsonl", [{"prompt": "x"}])},
            ],
        }
        with pytest.raises(SetError, match=r"bad\.jsonl:1: expected: is missing"):
            run(spec, tmp_path)
    assert engine.told == []
