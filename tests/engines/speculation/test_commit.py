"""What a pass has said, all rows at once, is what it would be token by token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.commit import append
from engines.native.request import Request, SamplingParams
from engines.native.rows import RowTable
from engines.native.step import StepOutput, StepPlan, Verified

pytestmark = pytest.mark.speculation

ROWS, LENGTH, PROMPT, STOPS = 6, 40, 5, (1, 2)


class Grammar:
    """Complete after so many tokens, or broken."""

    def __init__(self, ends: int, breaks: bool) -> None:
        self.left, self.breaks, self.complete, self.error = ends, breaks, False, ""
        self.shown: list[int] = []

    def show(self, token: int) -> None:
        assert not self.complete
        assert not self.error
        self.shown.append(token)
        if len(self.shown) == self.left:
            self.complete, self.error = not self.breaks, "broken" if self.breaks else ""


class Grammars:
    def follow(self, matchers, tokens) -> None:
        for matcher, token in zip(matchers, tokens, strict=True):
            matcher.show(token)


@dataclass(frozen=True)
class Row:
    said: list[int]
    alive: bool
    most: int
    least: int
    grammar: tuple[int, bool] | None


ROW = st.builds(
    Row,
    st.lists(st.integers(0, 6), max_size=6),
    st.sampled_from([True, True, True, False]),
    st.integers(1, 9),
    st.integers(0, 4),
    st.none() | st.tuples(st.integers(1, 7), st.booleans()),
)


def one_by_one(row: Row) -> tuple[list[int], bool | None, bool, list[int]]:
    """What is kept; whether it ends with a stop, None = it goes on; whether its grammar broke; what that was shown."""
    grammar = Grammar(*row.grammar) if row.grammar else None
    kept: list[int] = []
    for token in row.said if row.alive else []:
        kept.append(token)
        stop = token in STOPS and len(kept) >= row.least
        if grammar is not None and not stop:
            grammar.show(token)
            if grammar.error:
                return kept, None, True, grammar.shown
            stop = grammar.complete
        if stop or len(kept) >= row.most:
            return kept, stop, False, grammar.shown if grammar else []
    return kept, None, False, grammar.shown if grammar else []


@given(st.lists(ROW, min_size=1, max_size=ROWS), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=150, deadline=None)
def test_rows_get_what_they_would_token_by_token(rows, order, grammars):
    table, given_rows = RowTable(ROWS, LENGTH), list(range(ROWS))
    order.shuffle(given_rows)
    places = given_rows[: len(rows)]
    for place, row in zip(places, rows, strict=True):
        params = SamplingParams(max_tokens=row.most, min_tokens=row.least, stop_token_ids=list(STOPS))
        request = Request(id=100 + place, token_ids=np.full(PROMPT, 9, np.int32), params=params, prompt_len=PROMPT)
        request.row = place
        request.matcher = Grammar(*row.grammar) if row.grammar and grammars else None  # type: ignore[assignment] # all it is asked
        table.fill(place, request, PROMPT + row.most)
        table.alive[place] = row.alive
    width = max(1, *(len(row.said) for row in rows))
    words = np.array([row.said + [-1] * (width - len(row.said)) for row in rows], np.int32)
    counts = np.array([len(row.said) for row in rows], np.int32)
    which = np.array(places, np.int32)
    plan = StepPlan(which, which * 0, which * 0 + 1, sample=counts > 0)
    nothing = np.full(len(rows), -1, np.int32)
    output = StepOutput(nothing, np.zeros(0, np.float32), verified=Verified(words, counts))

    found = append(table, plan, output, Grammars() if grammars else None)

    ended, broken = dict(found.ended), {request.row for request in found.broken}
    for place, (row_number, row) in enumerate(zip(places, rows, strict=True)):
        own = row if grammars else Row(row.said, row.alive, row.most, row.least, None)
        kept, stop, breaks, shown = one_by_one(own)
        assert found.kept[place] == len(kept)
        assert table.known[row_number] == PROMPT + len(kept)
        assert table.history(row_number).tolist() == [9] * PROMPT + kept
        assert ended.get(row_number) == stop
        assert (row_number in broken) == breaks
        mine = found.drawn.ids == 100 + row_number
        assert found.drawn.tokens[mine].tolist() == kept
        assert found.drawn.positions[mine].tolist() == [place * width + column for column in range(len(kept))]
        if own.grammar is not None:
            request = table.requests[row_number]
            assert request is not None
            assert request.matcher is not None
            assert request.matcher.shown == shown  # type: ignore[attr-defined] # it is a Grammar


def test_a_plain_pass_appends_one_token_where_it_samples():
    table = RowTable(3, LENGTH)
    for row in range(3):
        request = Request(id=row, token_ids=np.zeros(2, np.int32), params=SamplingParams(), prompt_len=2)
        request.row = row
        table.fill(row, request, 3 if row == 2 else 10)
    rows = np.array([2, 0, 1], np.int32)
    plan = StepPlan(rows, rows, rows, sample=np.array([True, False, True]))
    found = append(table, plan, StepOutput(np.array([7, -1, 8], np.int32), np.zeros(3, np.float32)), None)
    assert found.kept.tolist() == [1, 0, 1]
    assert found.ended == [(2, False)]
    assert (found.drawn.ids.tolist(), found.drawn.tokens.tolist(), found.drawn.positions.tolist()) == (
        [2, 1], [7, 8], [0, 2],
    )  # fmt: skip
