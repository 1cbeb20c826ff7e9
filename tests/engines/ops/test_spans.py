"""How a pass falls apart for attention."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engines.native.ops.spans import LEAST_PROMPT, Span, spans_of

LONG = 2 * LEAST_PROMPT


def cut(*rows: tuple[int, int]) -> list[Span]:
    """rows: (tokens before the pass, tokens in it)."""
    start, count = np.array(rows, np.int32).T
    return spans_of(start, count)


def test_decodes_chunks_and_prompts_of_one_length_stand_apart():
    assert cut((9, 1), (5, 1), (64, 300), (0, LONG), (0, LONG), (0, LEAST_PROMPT), (0, 7)) == [
        Span(slice(0, 2), slice(0, 2), 1),
        Span(slice(2, 3), slice(2, 302), 300),
        Span(slice(3, 5), slice(302, 302 + 2 * LONG), LONG, LONG),
        Span(slice(5, 6), slice(302 + 2 * LONG, 302 + 2 * LONG + LEAST_PROMPT), LEAST_PROMPT, LEAST_PROMPT),
        Span(slice(6, 7), slice(302 + 2 * LONG + LEAST_PROMPT, 309 + 2 * LONG + LEAST_PROMPT), 7),
    ]


def test_rows_that_verify_stand_apart_whatever_they_try():
    start, count = np.array([(9, 1), (5, 8), (7, 1), (0, LONG), (3, 1)], np.int32).T
    assert spans_of(start, count, verified=2) == [
        Span(slice(0, 2), slice(0, 9), 8, tree=True),
        Span(slice(2, 3), slice(9, 10), 1),
        Span(slice(3, 4), slice(10, 10 + LONG), LONG, LONG),
        Span(slice(4, 5), slice(10 + LONG, 11 + LONG), 1),
    ]
    assert spans_of(start[:2], count[:2], verified=2) == [Span(slice(0, 2), slice(0, 9), 8, tree=True)]


def test_one_kind_is_one_span():
    assert cut((3, 1), (8, 1)) == [Span(slice(0, 2), slice(0, 2), 1)]
    assert cut((0, LONG), (0, LONG)) == [Span(slice(0, 2), slice(0, 2 * LONG), LONG, LONG)]


def test_a_last_token_behind_chunks_is_a_chunk():
    assert cut((4, 1), (0, 9), (16, 1)) == [Span(slice(0, 1), slice(0, 1), 1), Span(slice(1, 3), slice(1, 11), 9)]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, LEAST_PROMPT, LONG])), min_size=1, max_size=12))
def test_spans_cover_every_row_and_token_once(rows):
    spans = cut(*rows)
    assert [place for span in spans for place in range(span.rows.start, span.rows.stop)] == list(range(len(rows)))
    ends = np.cumsum([0, *(count for _, count in rows)])
    for span in spans:
        own = rows[span.rows]
        assert (span.tokens.start, span.tokens.stop) == (ends[span.rows.start], ends[span.rows.stop])
        assert span.max_query == max(count for _, count in own)
        if span.prompt:
            assert set(own) == {(0, span.prompt)}
