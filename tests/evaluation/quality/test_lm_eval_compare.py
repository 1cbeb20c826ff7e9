"""Two runs of a task, compared sample by sample."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from evaluation.quality.lm_eval_compare import compare, read_samples, stderr, table, value


def choice(row: int, right: float, *scores: tuple[float, bool]) -> dict[str, Any]:
    """A row of log-likelihoods, as lm-eval writes it: numbers as strings."""
    responses = [[[str(score), str(greedy)]] for score, greedy in scores]
    return {"doc_id": row, "prompt_hash": f"p{row}", "resps": responses, "acc": right}


def page(row: int, likelihood: float, words: int) -> dict[str, Any]:
    return {
        "doc_id": row,
        "prompt_hash": f"p{row}",
        "resps": [[str(likelihood)]],
        "word_perplexity": [likelihood, words],
    }


def answer(row: int, right: float, text: str) -> dict[str, Any]:
    return {"doc_id": row, "prompt_hash": f"p{row}", "resps": [[text]], "exact_match": right}


def test_log_likelihoods() -> None:
    peer = [choice(0, 1.0, (-1.0, True), (-2.0, False)), choice(1, 0.0, (-3.0, False), (-2.5, False))]
    ours = [choice(0, 1.0, (-1.01, True), (-2.0, False)), choice(1, 0.0, (-3.0, True), (-2.53, False))]
    found = compare("bbh", "acc", ours, peer, False)
    assert (found.rows, found.requests, found.greedy_differs, found.same_text) == (2, 4, 1, None)
    assert found.max_delta == pytest.approx(0.03)
    assert found.within
    ours[1]["resps"][1] = [["-2.56", "False"]]
    assert not compare("bbh", "acc", ours, peer, False).within


def test_beyond_a_standard_error() -> None:
    peer = [answer(row, float(row % 2), "x") for row in range(16)]
    ours = [answer(row, 1.0, "x" if row % 2 else "y") for row in range(16)]
    found = compare("gsm8k", "exact_match", ours, peer, True)
    assert found.same_text == 8
    assert found.max_delta is None
    assert found.stderr == pytest.approx(stdev([row % 2 for row in range(16)]) / 4)
    assert not found.within
    assert compare("gsm8k", "exact_match", peer, peer, True).within


def test_perplexity_is_of_all_words_together() -> None:
    pages = [page(0, -20.0, 10), page(1, -90.0, 30), page(2, -35.0, 20)]
    assert value("word_perplexity", pages) == pytest.approx(math.exp(145 / 60))
    other = [*pages[:2], page(2, -35.04, 20)]
    found = compare("wikitext", "word_perplexity", other, pages, False)
    assert found.max_delta == pytest.approx(0.04)
    assert (found.requests, found.same_text) == (3, None)


def test_a_perplexitys_standard_error_is_what_resampling_gives() -> None:
    import random

    chooser = random.Random(1)
    pages = [page(row, -chooser.gauss(3.0, 0.3) * (row + 50), row + 50) for row in range(60)]
    drawn = [value("word_perplexity", chooser.choices(pages, k=60)) for _ in range(2000)]
    assert stderr("word_perplexity", pages) == pytest.approx(stdev(drawn), rel=0.1)
    assert mean(drawn) == pytest.approx(value("word_perplexity", pages), rel=0.02)


def test_other_prompts_are_no_comparison() -> None:
    with pytest.raises(ValueError, match="other prompts"):
        compare("gsm8k", "exact_match", [answer(0, 1.0, "x")], [answer(1, 1.0, "x")], True)


def test_samples_are_read_in_the_order_of_rows(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="tursiops_bbh"):
        read_samples(tmp_path, "tursiops_bbh")
    (tmp_path / "model").mkdir()
    lines = [json.dumps(answer(row, 1.0, "x")) for row in (2, 0, 1)]
    (tmp_path / "model" / "samples_tursiops_bbh_2026.jsonl").write_text("\n".join(lines))
    assert [sample["doc_id"] for sample in read_samples(tmp_path, "tursiops_bbh")] == [0, 1, 2]
    (tmp_path / "model" / "samples_tursiops_bbh_2027.jsonl").write_text(lines[0])
    with pytest.raises(ValueError, match="2 runs"):
        read_samples(tmp_path, "tursiops_bbh")


def test_the_table_tells_what_was_missed() -> None:
    rows = [answer(row, float(row % 2), "x") for row in range(4)]
    wrong = [answer(row, 0.0, "y") for row in range(4)]
    pairs = [compare("gsm8k", "exact_match", ours, rows, True) for ours in (rows, wrong)]
    good, bad = table(pairs).splitlines()[2:]
    assert good.endswith("| 4 of 4 | yes |")
    assert bad.endswith("| 0 of 4 | NO |")
