"""Profiles: fitted from usage records with planted facts, written by hand, refused with the path."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from evaluation.profile import BusinessProfile, Guesses, ProfileError, fit, guesses_in, read_profile
from evaluation.schema import RequestRecord

CHAT, RAG = "key-chat", "key-rag"


def _rows(hours: float = 3.0, seed: int = 1) -> list[dict[str, object]]:
    """Two applications: chat with a prefix of 512 cached tokens, retrieval without; busy in the second hour."""
    chooser = np.random.default_rng(seed)
    rows: list[dict[str, object]] = []
    at = 1.7e9
    end = at + hours * 3600
    while at < end:
        busy = 3600 <= at - 1.7e9 < 7200
        at += chooser.exponential(1 / (4.0 if busy else 1.0))
        key = CHAT if chooser.random() < 0.75 else RAG
        user, output = (int(chooser.integers(20, 200)), 150) if key == CHAT else (3000, int(chooser.integers(10, 40)))
        hit = key == CHAT and chooser.random() < 0.9
        rows.append(
            {
                "api_key_id": key,
                "status": 200,
                "prompt_tokens": user + (512 if key == CHAT else 0),
                "cached_tokens": 512 if hit else 0,
                "completion_tokens": output,
                "started_at": at,
                "ttft_ms": 90.0,
                "duration_ms": 900.0,
                "retries": 0,
                "disconnected": False,
            }
        )
    return rows


def test_planted_facts_come_back():
    rows = _rows()
    found = fit(rows, "both")
    groups = {group.name: group for group in found.groups}
    assert groups[CHAT].prefix_tokens == 512
    assert groups[RAG].prefix_tokens == 0
    assert groups[CHAT].share == pytest.approx(0.75, abs=0.03)
    assert found.arrivals.rate == pytest.approx(2.0, rel=0.05)
    assert found.arrivals.peak == pytest.approx(4.5, rel=0.06)  # P97 of the busy hour's minutes, 240 ± 15.5
    assert found.arrivals.burstiness == pytest.approx(1.0, abs=0.15)
    drawn = found.draw(np.random.default_rng(0), 20_000)
    long = drawn.user > 2000
    assert long.mean() == pytest.approx(0.25, abs=0.03)
    assert set(drawn.output[~long]) == {150.0}  # lengths belong together
    assert drawn.output[long].max() < 40
    assert "usage records" in found.source


def test_exports_of_the_database_and_of_the_stream_say_the_same():
    rows = _rows(0.5)
    exported = [
        row | {"started_at": datetime.fromtimestamp(float(str(row["started_at"])), UTC).isoformat()} for row in rows
    ]
    assert fit(exported, "x").arrivals.rate == pytest.approx(fit(rows, "x").arrivals.rate, rel=1e-6)


def test_only_answers_have_lengths_but_all_arrivals_count():
    rows = _rows(0.5)
    failed = [row | {"status": 429, "completion_tokens": 0, "prompt_tokens": 0} for row in rows]
    both = fit([*rows, *failed], "x")
    assert both.arrivals.rate == pytest.approx(2 * fit(rows, "x").arrivals.rate, rel=0.01)
    assert both.lengths.pairs == fit(rows, "x").lengths.pairs


def test_bursts_are_seen():
    chooser = np.random.default_rng(3)
    gaps = chooser.gamma(0.25, 1 / (0.25 * 5), 20_000)
    rows = [
        {"status": 200, "prompt_tokens": 10, "completion_tokens": 5, "started_at": 1.7e9 + at} for at in np.cumsum(gaps)
    ]
    assert fit(rows, "x").arrivals.burstiness == pytest.approx(0.25, rel=0.3)


def test_too_few_records_are_refused_with_their_number():
    with pytest.raises(ProfileError, match="3 of 3 usage records"):
        fit(_rows(0.5)[:3], "x")
    with pytest.raises(ProfileError, match="started_at: 'yesterday'"):
        fit([{"started_at": "yesterday"}], "x")


def test_a_histogram_is_drawn_as_it_says():
    profile = read_profile(
        {
            "name": "h",
            "arrivals": {"rate": 1},
            "lengths": {"user_edges": [0, 100, 1000], "output_edges": [1, 10, 100], "counts": [[3, 0], [0, 1]]},
        }
    )
    drawn = profile.draw(np.random.default_rng(0), 10_000)
    short = drawn.user < 100
    assert short.mean() == pytest.approx(0.75, abs=0.02)
    assert drawn.output[short].max() < 10
    assert drawn.output[~short].min() >= 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrivals": {"rate": 0}}, r"\$\.arrivals\.rate"),
        ({"lengths": {}}, r"\$\.lengths: give `pairs`"),
        ({"lengths": {"pairs": [[10, 0]]}}, r"\$\.lengths\.pairs"),
        ({"lengths": {"user_edges": [0, 10], "output_edges": [0, 5], "counts": []}}, r"counts: 1 rows of 1"),
        ({"speed": 3}, "unknown field `speed`"),
        ({"groups": [{"prefix_tokens": -1}]}, r"\$\.groups\[0\]\.prefix_tokens"),
        ({"slo": [{"metric": "ttft"}]}, "limit_ms"),
    ],
)
def test_a_wrong_profile_names_its_path(change, words):
    good = {"name": "x", "arrivals": {"rate": 1}, "lengths": {"pairs": [[10, 5]]}}
    assert isinstance(read_profile(good), BusinessProfile)
    with pytest.raises(ProfileError, match=words):
        read_profile(good | change)


def test_the_example_of_the_documentation_is_a_profile():
    text = (Path(__file__).parents[2] / "docs/planner.md").read_text(encoding="utf-8")
    example = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert example is not None
    assert read_profile(example[1]).arrivals.peak == 10.0


def test_guesses_are_counted_by_pass():
    """40 tokens: the prompt's, 26 of passes, 13 guessed; 7 guesses were checked in vain."""

    def answer(tokens: int, accepted: int | None = None, rejected: int | None = None) -> RequestRecord:
        return RequestRecord(
            index=0, intended_ns=0, output_tokens=tokens, accepted_tokens=accepted, rejected_tokens=rejected
        )

    assert guesses_in([answer(40, 13, 7), answer(1, 0, 0)]) == Guesses(tokens=1.5, checked=20 / 26)
    assert guesses_in([answer(40)]) == Guesses() == guesses_in([])


def test_more_told_than_checked_is_refused():
    given = {"name": "x", "arrivals": {"rate": 1}, "lengths": {"pairs": [[1, 2]]}}
    assert read_profile({**given, "guesses": {"tokens": 1.5, "checked": 0.8}}).guesses.tokens == 1.5
    with pytest.raises(ProfileError, match=r"guesses.tokens: 3 are more than 1 and all 0.5"):
        read_profile({**given, "guesses": {"tokens": 3, "checked": 0.5}})
