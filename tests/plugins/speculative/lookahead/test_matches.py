import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.speculation.proposer import History
from plugins.speculative.lookahead.chains import WINDOW
from plugins.speculative.lookahead.local import LEAST, LONG, SHORT, Local
from plugins.speculative.lookahead.matches import ENOUGH, KEPT, Match, Text, find
from plugins.speculative.lookahead.store import Store
from plugins.speculative.lookahead.survival import GLOBAL, LOCAL

pytestmark = pytest.mark.speculation

FEW = st.lists(st.integers(0, 3), min_size=1, max_size=90)


def common(tokens: list[int], other: list[int]) -> int:
    """Length of their common end, at most WINDOW."""
    length = 0
    while length < min(len(tokens), len(other), WINDOW) and tokens[-1 - length] == other[-1 - length]:
        length += 1
    return length


def searched(prompt: list[int], output: list[int], store: Store | None = None, count: int = 6) -> list[Match]:
    """In the second of two rows, so that a wrong base would show."""
    history = History(np.full((2, 200), 9, np.int32), np.zeros(2, np.int32))
    history.token_ids[1, : len(prompt)], history.known[1] = prompt, len(prompt)
    local, ints = Local(history, 1), memoryview(history.token_ids.reshape(-1))
    tokens = prompt + output
    history.token_ids[1, : len(tokens)], history.known[1] = tokens, len(tokens)
    local.extend(ints.cast("B"), 200, len(tokens), output)
    return find(Text(ints, ints.cast("B"), 200, len(tokens)), local, store, [], count)


@given(FEW, FEW)
@settings(max_examples=100, deadline=None)
def test_local_matches_are_those_of_a_search_through_every_place(prompt, output):
    tokens, found = prompt + output, searched(prompt, output)
    lengths = {p: common(tokens, tokens[:p]) for p in range(1, len(tokens))}
    for length, source, position, _, follows in found:
        assert source == LOCAL
        assert length == lengths[position] >= LEAST
        assert follows == (tokens + follows)[position : position + 6]  # past the end it goes on with itself
    assert [match[0] for match in found] == sorted((match[0] for match in found), reverse=True)
    places = [sum(length >= order for length in lengths.values()) for order in (LONG, SHORT)]
    least = LONG if places[0] >= ENOUGH else SHORT if places[1] >= ENOUGH else LEAST
    newest = [p for p, length in lengths.items() if length >= least][-4:]  # of the newest places none is overlooked
    assert len(found) == KEPT or set(newest) <= {match[2] for match in found}


@given(FEW, st.lists(FEW, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_matches_in_the_store_are_true_and_stay_in_their_document(prompt, documents):
    store = Store()
    for document in documents:
        store.append(np.array(document, np.int32))
    for length, source, position, _, follows in searched(prompt, [], store):
        if source == GLOBAL:
            text = store.tokens.tolist()
            assert length == common(prompt, text[:position]) >= 1
            assert -1 not in text[position - length : position]
            assert follows == text[position : text.index(-1, position)][:6] != []


def test_a_match_longer_than_others_is_found_behind_many_newer_ones():
    long = [11, 12, 13, 14, 15, 16, 17, 18]
    prompt = [*long, 99, *[token for other in range(30) for token in (17, 18, 20 + other)], *long]
    assert searched(prompt, [])[0][0] == 8
    assert searched(prompt, [])[0][4][0] == 99


def test_earlier_matches_that_held_go_on():
    history = History(np.zeros((1, 50), np.int32), np.zeros(1, np.int32))
    tokens = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4]
    history.token_ids[0, :11], history.known[0] = tokens, 11
    local, ints = Local(history, 0), memoryview(history.token_ids.reshape(-1))
    text = Text(ints, ints.cast("B"), 0, 11)
    found = find(text, local, None, [(5, -LOCAL, 4, 0), (5, -GLOBAL, 3, 0)], 3)
    assert [(match[2], match[0]) for match in found] == [(4, 5)]  # no store has the other
