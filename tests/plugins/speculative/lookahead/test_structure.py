"""The views beside raw tokens, over a vocabulary of one character per token."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.speculation.proposer import ProposerSettings
from plugins.speculative.lookahead import Lookahead
from plugins.speculative.lookahead.segments import BEGINS_WORD, ENDS_KEY, ENDS_LINE, MARK, flags_of
from plugins.speculative.lookahead.structure import LARGEST, PLACES, Structure
from plugins.speculative.lookahead.survival import KEY, LINE, MAX_ODDS, Survival, Weights
from tests.plugins.speculative.drive import begin, history_of, propose

pytestmark = pytest.mark.speculation

WORDS = [" ", "\n", "\n    ", '":', '",', '"', *"{}xyz", "name", "age", "Ann", "Bob", "Eve", "return", "ing"]
ID = {word: token for token, word in enumerate(WORDS)}


def ids(*words: str) -> list[int]:
    return [ID[word] for word in words]


def test_what_tokens_begin_and_end():
    flags = flags_of(["the", " the", "ing", "\n  ", '":', '": "', '",', "{", None, b" caf\xc3\xa9", b"\xff"])
    assert [bool(flag & BEGINS_WORD) for flag in flags] == [
        False, True, False, True, True, True, True, True, True, True, True,
    ]  # fmt: skip
    assert [token for token, flag in enumerate(flags) if flag & ENDS_LINE] == [3]
    assert [token for token, flag in enumerate(flags) if flag & ENDS_KEY] == [4, 5]
    assert [token for token, flag in enumerate(flags) if flag & MARK] == [6, 7]


def test_a_line_begins_as_the_one_after_a_line_that_began_like_this():
    structure = Structure(flags_of(WORDS))
    text = ids("\n", "x", "y", "z", "z", "\n    ", "return", "x", "\n", "x", "y", "Ann", "\n    ")
    structure.extend(text, 0)
    assert (LINE, 2, 6) in structure.matches()  # `return` followed there, though z z ≠ Ann


def test_after_a_value_the_next_key_follows_the_last_key():
    structure = Structure(flags_of(WORDS))
    one = ids("{", '"', "name", '":', '"', "Ann", '",', '"', "age", '":')
    structure.extend(one + ids("x", "}", "{", '"', "name", '":', '"', "Bob", "Eve", '",'), 0)
    assert (KEY, 2, 7) in structure.matches()  # the quote before `age`


@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=120), st.integers(0, 120))
@settings(max_examples=60, deadline=None)
def test_views_lead_to_places_with_the_same_key_however_the_text_came(tokens, cut):
    flags = flags_of(WORDS)
    whole, parts = Structure(flags), Structure(flags)
    whole.begin(np.array(tokens, np.int32))
    parts.extend(tokens[:cut], 0)
    parts.extend(tokens[cut:], len(tokens[:cut]))
    assert whole.matches() == parts.matches()
    keys = whole.keys()
    for view, _, place in whole.matches():
        before = Structure(flags)
        before.extend(tokens[:place], 0)
        assert before.keys()[view] == keys[view]
    assert all(len(places) <= PLACES for places in whole._places.values())


def test_text_of_marks_and_line_ends_alone_stays_small():
    structure = Structure(flags_of(WORDS))
    rng = np.random.default_rng(1)
    structure.extend(rng.choice(ids("\n", '":', '",', '"', "x", "y", "z", "{"), 30_000).tolist(), 0)
    assert len(structure._places) == LARGEST
    structure.extend(ids("\n", "x", "y"), 30_000)
    (place,) = structure._places[next(reversed(structure._places))][-1:]
    assert place > 29_000  # the newest is kept


def guessed(pieces: list[str] | None, prompt: list[int]) -> list[int]:
    history = history_of(1, 200)
    options = {"pieces": pieces} if pieces else {}
    lookahead = Lookahead(ProposerSettings(history, vocab=len(WORDS), options=options))
    begin(lookahead, history, 0, prompt)
    return propose(lookahead, [0], 8)[0].tokens.tolist()


def test_a_view_sees_what_raw_tokens_cannot():
    record = [
        "{",
        '"',
        "name",
        '":',
        '"',
        "Ann",
        '",',
        '"',
        "age",
        '":',
        '"',
        "x",
        '",',
        '"',
        "z",
        '":',
        '"',
        "y",
        '"',
        "}",
    ]
    prompt = ids(*record, "{", '"', "name", '":', '"', "Eve", "Bob", '",')
    assert guessed(None, prompt)[:2] == ids('"', "z")  # the newest place of `",` is after another key
    assert guessed(WORDS, prompt)[:3] == ids('"', "age", '":')


def test_weights_follow_what_held():
    weights = Weights([0.0] * 4)
    weights.move(LINE, 0.5, 0.25)
    assert weights.factors[LINE] == pytest.approx(math.exp(0.125))
    assert weights.factors[KEY] == 1
    for _ in range(100):
        weights.move(KEY, -0.5, 0.25)
    assert weights.log_odds[KEY] == -MAX_ODDS


def test_rates_become_the_share_that_held_and_forget():
    survival = Survival()
    for _ in range(3000):
        survival.learn(17, True)
    assert survival.rates[17] > 0.99
    for _ in range(20_000):
        survival.learn(17, False)
    assert survival.rates[17] < 0.05
