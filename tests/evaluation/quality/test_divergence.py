"""Where two answers part, and by how much."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.quality.divergence import partings

END = 0


def answered(row: int, text: str) -> dict[str, Any]:
    return {"doc_id": row, "arguments": {"gen_args_0": {"arg_0": "Q"}}, "resps": [[text]]}


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_the_first_token_that_differs_is_scored_after_what_both_wrote() -> None:
    scores = {"Qab": -0.5, "Qac": -0.4999, "Qx": -1.0, "Qy": -3.0}
    asked: list[str] = []

    def score(ids: list[int]) -> float:
        asked.append("".join(map(chr, ids)))
        return scores[asked[-1]]

    ours = [answered(0, "same"), answered(1, "abz"), answered(2, "x")]
    peer = [answered(0, "same"), answered(1, "acq"), answered(2, "y")]
    tie, fault = partings(ours, peer, END, encode, score)
    assert (tie.row, tie.place, tie.ours, tie.peer) == (1, 1, ord("b"), ord("c"))
    assert tie.gap == pytest.approx(1e-4)
    assert tie.tie
    assert (fault.row, fault.gap, fault.tie) == (2, -2.0, False)
    assert asked == ["Qac", "Qab", "Qy", "Qx"]


def test_an_answer_that_ends_where_the_other_goes_on() -> None:
    found = partings([answered(0, "ab")], [answered(0, "abc")], END, encode, lambda ids: float(ids[-1]))
    assert [(each.place, each.ours, each.peer, each.gap) for each in found] == [(2, END, ord("c"), 99.0)]
