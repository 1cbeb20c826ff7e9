"""The judge: how words become votes, and a whole task with judges whose habits are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.quality.judging import kappa, length_controlled, majority, verdict, vote
from evaluation.schema import ResultDoc
from tests.evaluation.quality.servers import Bigram, Talk, served
from tests.evaluation.quality.suites import lines, run, task


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("A is right. [[A]]", "a"),
        ("[[B]] … so, finally: [[ B ]]", "b"),
        ("Neither. [[C]]", "tie"),
        ("[[A]] or rather [[B]]", None),
        ("Answer A is better.", None),
        ("[A]", None),
        ("[[D]]", None),
        ("[[a]]", None),
        ("", None),
    ],
)
def test_only_one_clear_verdict_counts(words: str, told: str | None) -> None:
    assert verdict(words) == told


@pytest.mark.parametrize(
    ("straight", "swapped", "told"),
    [
        ("a", "b", "a"),  # the same answer in both orders
        ("b", "a", "b"),
        ("tie", "tie", "tie"),
        ("a", "a", "tie"),  # the first shown, whichever it is
        ("a", "tie", "tie"),
        ("a", None, None),
        (None, "b", None),
    ],
)
def test_a_vote_is_what_both_orders_agree_on(straight: Any, swapped: Any, told: Any) -> None:
    assert vote(straight, swapped) == told


@pytest.mark.parametrize(
    ("votes", "told"),
    [
        (["a", "a", "b"], "a"),
        (["a", "b", "tie"], "tie"),
        (["b", None, None], "b"),
        (["a", "b"], "tie"),
        (["tie", "tie", "a"], "tie"),
        ([None, None, None], None),
    ],
)
def test_the_majority_of_what_could_be_read(votes: Any, told: Any) -> None:
    assert majority(votes) == told


def test_kappa_of_a_table_in_the_literature() -> None:
    """Cohen's own kind of example: 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no give 0.4."""
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    found = kappa(pairs)
    assert found.value == pytest.approx(0.4)
    assert found.low is not None
    assert found.high is not None
    assert 0.1 < found.low < 0.25  # the asymptotic interval is 0.15 to 0.65
    assert 0.55 < found.high < 0.7
    assert kappa([("a", "a")] * 5).value is None  # chance alone agrees as much
    assert kappa([]).value is None


def test_length_is_taken_out_of_a_win_rate() -> None:
    """Wins that follow the length alone are no wins at equal length; those that don't stay."""
    rng = np.random.default_rng(0)
    lengths = [(int(one), 500) for one in rng.normal(700, 200, 2000)]
    follows = [1 / (1 + np.exp(-3 * np.tanh((one - 500) / 200))) for one, _ in lengths]
    wins = [float(rng.random() < chance) for chance in follows]
    rate, effect = length_controlled(wins, lengths)
    assert np.mean(wins) > 0.75
    assert rate == pytest.approx(0.5, abs=0.06)
    assert effect == pytest.approx(3, abs=0.5)
    rate, effect = length_controlled([1.0] * 300 + [0.0] * 100, [(100, 100)] * 400)
    assert (rate, effect) == (pytest.approx(0.75, abs=0.01), pytest.approx(0, abs=1e-6))
    assert length_controlled([1.0] * 50, [(100, 50)] * 50)[0] < 1  # finite where one side always wins


_PARTS = re.compile(r"# Answer A\n\n(.*)\n\n# Answer B\n\n(.*)\n\n# Your verdict", re.DOTALL)


def shown(messages: list[dict[str, Any]]) -> tuple[str, str]:
    found = _PARTS.search(messages[-1]["content"])
    assert found is not None
    return found[1], found[2]


def fair(messages: list[dict[str, Any]], body: dict[str, Any]) -> str:
    """Prefers the answer with the greater number in it."""
    first, second = (int(re.sub(r"\D", "", each) or 0) for each in shown(messages))
    return f"Reasons. [[{'C' if first == second else 'A' if first > second else 'B'}]]"


def prefers_first(messages: list[dict[str, Any]], body: dict[str, Any]) -> str:
    return "[[A]]"


def mumbles(messages: list[dict[str, Any]], body: dict[str, Any]) -> str:
    return "Both have something. [[A]] or [[B]]" if body["seed"] % 2 else fair(messages, body)


def judged(tmp_path: Path, judge: Talk, **fields: Any) -> tuple[ResultDoc, Bigram]:
    """20 prompts "n": the candidate answers n, the reference 10."""
    candidate = Bigram(lambda messages, body: f"It is {messages[-1]['content']}")
    reference, third = Bigram(lambda messages, body: "It is 10"), Bigram(judge)
    rows = [{"id": f"p{n}", "prompt": str(n), "group": n // 2} for n in range(20)]
    with served(candidate, reference, third):
        spec = {
            "endpoint": {"url": candidate.url},
            "reference": {"url": reference.url},
            "judge": {"url": third.url},
            "tasks": [{"kind": "judge", "name": "j", "data": lines(tmp_path / "rows.jsonl", rows), **fields}],
            "gates": [{"kind": "limit", "metric": "j.win_rate", "at_least": 0.6}],
        }
        return run(spec, tmp_path), third


def test_a_fair_judge(tmp_path: Path) -> None:
    doc, judge = judged(tmp_path, fair)
    figures = task(doc, "j").figures
    assert len(judge.told) == 20 * 3 * 2
    assert figures["wins"].value == 9 / 20
    assert figures["ties"].value == 1 / 20
    assert figures["losses"].value == 10 / 20
    assert figures["win_rate"].value == pytest.approx(9.5 / 20)
    assert figures["win_rate"].method == "cluster_bootstrap"
    assert figures["order_flips"].value == figures["unreadable"].value == 0
    assert "judge_not_calibrated" in [finding.code for finding in doc.findings]
    assert {body["temperature"] for body in judge.told} == {0, 0.7}
    assert doc.quality is not None
    assert doc.quality.gates[0].decision != "pass"


def test_a_judge_of_positions_decides_nothing(tmp_path: Path) -> None:
    doc, _ = judged(tmp_path, prefers_first, votes=1)
    figures = task(doc, "j").figures
    assert figures["ties"].value == figures["order_flips"].value == figures["first_shown"].value == 1.0
    assert figures["win_rate"].value == 0.5


def test_what_can_not_be_read_is_counted_and_never_guessed(tmp_path: Path) -> None:
    doc, _ = judged(tmp_path, mumbles)
    figures = task(doc, "j").figures
    assert figures["unreadable"].value == pytest.approx(1 / 3)
    assert figures["wins"].value == 9 / 20
    assert "judge_unreadable" in [finding.code for finding in doc.findings]
    (tmp_path / "again").mkdir()
    doc, _ = judged(tmp_path / "again", lambda messages, body: "Hm.", votes=1)
    assert task(doc, "j").figures["undecided"].value == 20
    assert task(doc, "j").figures["win_rate"].value is None
    assert doc.verdict == "invalid"


def test_calibration_against_people(tmp_path: Path) -> None:
    labels = []
    for number in range(30):
        answers = {"answer_a": f"{number}", "answer_b": "15"}
        label = "tie" if number == 15 else "a" if number > 15 else "b"
        swapped = {"a": "b", "b": "a", "tie": "tie"}[label] if number % 5 == 0 else label  # people who see it otherwise
        labels.append({"prompt": "Which?", "id": number, "label": swapped, **answers})
    name = lines(tmp_path / "labels.jsonl", labels)
    doc, _ = judged(tmp_path, fair, votes=1, calibration=name, least_labels=30, least_kappa=0.9)
    found = task(doc, "j").figures["kappa"]
    assert found.n == 30
    assert found.value == pytest.approx(0.68, abs=0.05)
    codes = [finding.code for finding in doc.findings]
    assert "judge_disagrees" in codes
    assert "judge_not_calibrated" not in codes
    assert "judge_follows_length" in codes, "here the greater number is the longer answer"
    assert task(doc, "j").figures["wins"].n == 20  # the calibration's items are in no win rate
