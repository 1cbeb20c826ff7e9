"""Two versions whose every probability is known: each figure against the sum over the whole vocabulary."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.quality.consistency import bucketed_kl
from tests.evaluation.quality.servers import VOCAB, Bigram, served
from tests.evaluation.quality.suites import TEXT, run, task

IDS = np.array(list(TEXT.encode()[:400]))


def compared(tmp_path: Path, candidate: Bigram, reference: Bigram, **fields: Any) -> Any:
    (tmp_path / "text.txt").write_text(TEXT)
    one = {"kind": "consistency", "name": "c", "data": "text.txt", "window": 50, "windows": 8, "greedy_prompt": 10}
    with served(candidate, reference):
        spec = {"endpoint": {"url": candidate.url}, "reference": {"url": reference.url}, "tasks": [one | fields]}
        return run(spec, tmp_path)


def places() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(token before, token) of each scored place: the first of each window of 50 is not."""
    windows = IDS.reshape(8, 50)
    return windows[:, :-1].ravel(), windows[:, 1:].ravel()


def truth(reference: Bigram, candidate: Bigram) -> dict[str, float]:
    before, token = places()
    one, other = reference.rows[before], candidate.rows[before]
    kl = (np.exp(one) * (one - other)).sum(axis=1)
    best, now = one.argmax(axis=1), other.argmax(axis=1)
    own = one[range(len(token)), token] - other[range(len(token)), token]
    return {
        "top1_match": float((best == now).mean()),
        "kl_mean": float(kl.mean()),
        "kl_p99": float(np.sort(kl)[math.ceil(0.99 * len(kl)) - 1]),
        "perplexity_ratio": math.exp(float(own.mean())),
        "right_to_wrong": float(((best == token) & (now != token)).mean()),
        "wrong_to_right": float(((best != token) & (now == token)).mean()),
    }


def test_the_whole_vocabulary_gives_the_exact_divergence(tmp_path: Path) -> None:
    reference, candidate = Bigram(), Bigram(noise=0.5)
    reference.most_top = candidate.most_top = VOCAB
    doc = compared(tmp_path, candidate, reference, top=-1)
    found = task(doc, "c")
    assert found.policy["kl"] == "full vocabulary"
    for name, value in truth(reference, candidate).items():
        assert found.figures[name].value == pytest.approx(value, abs=1e-6), name
    assert found.figures["top1_match"].value != 1.0
    assert found.figures["greedy_same"].value is not None


@pytest.mark.parametrize("ids", [True, False], ids=["by id", "by text"])
def test_the_likeliest_tokens_give_a_lower_bound(tmp_path: Path, ids: bool) -> None:
    """An endpoint that refuses the whole vocabulary is asked for its 20 likeliest."""
    reference, candidate = Bigram(ids=ids), Bigram(noise=0.5, ids=ids)
    found = task(compared(tmp_path, candidate, reference, top=-1), "c")
    exact = truth(reference, candidate)
    bound, covered = found.figures["kl_mean"].value, found.figures["covered"].value
    assert bound is not None
    assert covered is not None
    assert 0.3 * exact["kl_mean"] < bound < exact["kl_mean"]
    assert 0.5 < covered < 1
    assert found.policy["kl"].startswith("lower bound")
    for name in ("top1_match", "perplexity_ratio", "right_to_wrong", "wrong_to_right"):
        assert found.figures[name].value == pytest.approx(exact[name], abs=1e-6), name


def test_a_model_beside_itself_differs_in_nothing(tmp_path: Path) -> None:
    figures = task(compared(tmp_path, Bigram(), Bigram()), "c").figures
    assert figures["top1_match"].value == figures["greedy_same"].value == 1.0
    assert figures["kl_mean"].value == pytest.approx(0, abs=1e-9)
    assert figures["perplexity_ratio"].value == pytest.approx(1.0)
    assert figures["first_divergence"].value is None


def test_the_first_greedy_divergence_is_where_the_rows_part(tmp_path: Path) -> None:
    """One transition of the second version is other: each answer parts where it would take it."""
    reference, candidate = Bigram(), Bigram()
    start = int(IDS[9])
    path = [start]
    for _ in range(3):
        path.append(int(reference.rows[path[-1]].argmax()))
    at = path[-1]
    second = int(np.argsort(-candidate.rows[at])[1])
    candidate.rows[at, second] = candidate.rows[at].max() + 0.1
    place = path.index(at)
    doc = compared(tmp_path, candidate, reference, windows=1, greedy_tokens=16)
    figure = task(doc, "c").figures["first_divergence"]
    assert (figure.value, figure.unit, figure.n) == (float(place), "tokens", 1)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    class Other(Bigram):
        async def _tokenize(self, request: Any) -> Any:
            from aiohttp import web

            return web.json_response({"tokens": [each + 1 for each in (await request.json())["prompt"].encode()]})

    doc = compared(tmp_path, Other(), Bigram())
    assert [finding.code for finding in doc.findings] == ["other_tokenizer"]


def test_putting_tokens_together_never_raises_a_divergence() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        p, q = (rng.dirichlet(np.full(30, 0.3)) + 1e-12 for _ in range(2))
        exact = float((p * np.log(p / q)).sum())
        known = [rng.choice(30, 12, replace=False) for _ in range(2)]
        one, other = ({str(at): float(np.log(of[at])) for at in kept} for of, kept in zip((p, q), known, strict=True))
        bound, mass = bucketed_kl(one, other)
        assert 0 <= bound <= exact + 1e-6
        assert mass == pytest.approx(sum(p[at] for at in set(known[0]) & set(known[1])))
