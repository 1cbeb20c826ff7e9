import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.speculation.proposer import ProposerSettings, make_proposer
from engines.native.speculation.tree import MAX_NODES
from plugins.speculative.lookahead import Lookahead
from tests.plugins.speculative.drive import begin, grow, history_of, propose, verify

pytestmark = pytest.mark.speculation


def made(rows: int = 4, length: int = 400, **settings):
    history = history_of(rows, length)
    return Lookahead(ProposerSettings(history, vocab=1 << 17, **settings)), history


def text(seed: int, count: int, vocabulary: int = 50_000) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocabulary, count).tolist()


def test_the_engine_finds_it_by_name():
    assert isinstance(make_proposer("lookahead", ProposerSettings(history_of(1, 8), vocab=8)), Lookahead)


def test_copied_text_is_guessed_in_long_chains_after_a_few_tokens():
    lookahead, history = made()
    source = text(1, 100)
    begin(lookahead, history, 0, [*source, 60_000, *source[20:24]])
    found = [verify(lookahead, history, {0: [*source, 60_000, *source[20:90]]}, 12)[0] for _ in range(6)]
    assert sum(held for _, held in found) >= 58
    assert found[-1][0] <= 12


def test_nothing_is_guessed_from_nothing():
    lookahead, history = made()
    begin(lookahead, history, 0, [1])
    begin(lookahead, history, 1, text(2, 50))
    begin(lookahead, history, 2, [5, 6, 7, 5, 6])
    trees = propose(lookahead, [0, 1, 2], [8, 8, 0])
    assert [len(tree) for tree in trees] == [0, 0, 0]


def test_two_tokens_that_led_elsewhere_each_time_are_no_reason_for_confidence():
    """[G2] vllm#40875: a tool-call template's two tokens are everywhere, and what follows them differs."""
    lookahead, history = made(length=3000)
    opening = [900, 901]
    prompt = [token for call in range(30) for token in (*opening, 1000 + call, 2000 + call, 3000 + call)]
    begin(lookahead, history, 0, [*prompt, *opening])
    (tree,) = propose(lookahead, [0], 16)
    assert tree.confidence[tree.parents == 0].max(initial=0) < 0.5
    for call in range(30, 80):  # and each answer is a new one
        grow(lookahead, history, 0, [1000 + call, 2000 + call, 3000 + call, *opening])
        (tree,) = propose(lookahead, [0], 16)
    assert tree.confidence[tree.parents == 0].max(initial=0) < 0.15
    assert tree.survival().sum() < 0.5  # a whole tree of them is worth less than half a token
    source = text(3, 60)
    begin(lookahead, history, 1, [*source, *source[:12]])
    (copy,) = propose(lookahead, [1], 16)
    assert copy.confidence[0] > 0.7  # what a long match says stays sure


def test_confidence_is_the_share_that_holds():
    """A source that says, after each pair, one of two things: 3 times in 4 the same."""
    rng = np.random.default_rng(4)
    lookahead, history = made(length=6000)
    said: list[int] = []
    for _ in range(1200):
        pair = int(rng.integers(0, 12))
        said += [100 + pair, 200 + pair, 300 + pair if rng.random() < 0.75 else 400 + pair]
    begin(lookahead, history, 0, said[:300])
    told, held = [], []
    for place in range(300, len(said), 3):
        grow(lookahead, history, 0, said[place : place + 2])
        (tree,) = propose(lookahead, [0], 8)
        if place > 1500:
            told.append(float(tree.confidence[tree.tokens == said[place + 2]][:1].sum()))
            first = tree.parents == 0
            told[-1] = float(tree.confidence[first].sum())
            held.append(said[place + 2] in tree.tokens[first].tolist())
        grow(lookahead, history, 0, said[place + 2 : place + 3])
    assert np.mean(told) == pytest.approx(np.mean(held), abs=0.08)


def test_what_one_request_said_helps_the_next_of_its_salt_only():
    lookahead, history = made()
    prompt, answer = text(5, 40), text(6, 60)
    begin(lookahead, history, 0, prompt, "a")
    grow(lookahead, history, 0, answer)
    begin(lookahead, history, 3, [*prompt, *answer[:5]], "a")
    assert len(propose(lookahead, [3], 8)[0]) == 0  # it runs still
    lookahead.end(0)
    for row, salt in ((0, "b"), (1, "a"), (2, "")):
        begin(lookahead, history, row, [*prompt, *answer[:5]], salt)
    trees = propose(lookahead, [0, 1, 2], 8)
    assert [tree.tokens.tolist() for tree in trees] == [[], answer[5:13], []]
    assert trees[1].source.tolist() == [0] * 8


def test_what_guesses_taught_and_texts_to_keep_wait_for_a_pass_that_is_on_its_way():
    lookahead, history = made()
    source = text(11, 60)
    begin(lookahead, history, 0, [*source, *source[:12]])
    propose(lookahead, [0], 8)
    before = list(lookahead._survival.trials)
    grow(lookahead, history, 0, source[12:18])
    lookahead.end(0)
    assert lookahead._survival.trials == before
    assert lookahead.stats()["lookahead_tokens"] == 0
    lookahead.meanwhile()
    assert sum(lookahead._survival.trials) > sum(before)
    assert lookahead.stats()["lookahead_tokens"] > 60


def test_a_full_batch_is_not_asked_to_try_the_unlikely():
    lookahead, history = made(rows=64, length=100)
    for row in range(64):
        begin(lookahead, history, row, text(row, 90, 12))
    one, *_ = propose(lookahead, [0], 31)
    many = propose(lookahead, range(64), 31)
    assert one.survival().min() < 0.1
    assert min(tree.survival().min() for tree in many if len(tree)) > 0.12
    assert 0 < len(many[0]) < len(one)


def test_without_trees_only_chains_are_guessed():
    lookahead, history = made(trees=False)
    says = text(7, 300, 6)
    begin(lookahead, history, 0, says[:50])
    while history.known[0] < 300:
        (tree,) = propose(lookahead, [0], 10)
        assert tree.chain
        grow(lookahead, history, 0, says[int(history.known[0]) :][:3])


def test_a_row_that_is_preempted_begins_again_in_another():
    lookahead, history = made()
    source = text(8, 60)
    begin(lookahead, history, 0, [*source, *source[:10]], "a")
    propose(lookahead, [0], 8)
    lookahead.end(0)  # before its guess was verified
    begin(lookahead, history, 0, text(9, 30), "b")  # another takes the row
    begin(lookahead, history, 2, [*source, *source[:10]], "a")
    mine, other = propose(lookahead, [2, 0], 8)
    assert mine.tokens.tolist() == source[10:18]
    assert len(other) == 0
    grow(lookahead, history, 2, source[10:15])
    assert propose(lookahead, [2], 4)[0].tokens.tolist() == source[15:19]
    lookahead.end(2)
    lookahead.end(2)  # ended twice: nothing is there any more
    assert lookahead.stats()["lookahead_salts"] >= 1


def test_text_that_repeats_itself_goes_on():
    lookahead, history = made()
    begin(lookahead, history, 0, [1, 2, 3] * 8)
    assert propose(lookahead, [0], 9)[0].tokens.tolist()[:9] == [1, 2, 3] * 3


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_course_of_events_gives_trees(data):
    lookahead, history = made(rows=3, length=120, options={"lookahead_bytes": 100_000})
    alive: set[int] = set()
    for _ in range(data.draw(st.integers(5, 40))):
        row = data.draw(st.integers(0, 2))
        act = data.draw(st.sampled_from(["begin", "grow", "propose", "end"]))
        if row not in alive:
            prompt = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=30))
            begin(lookahead, history, row, prompt, data.draw(st.sampled_from(["", "a"])))
            alive.add(row)
        elif act == "grow" and history.known[row] < 100:
            grow(lookahead, history, row, data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9)))
        elif act == "propose":
            limit = data.draw(st.integers(0, 40))
            (tree,) = propose(lookahead, [row], limit)
            assert len(tree) <= min(limit, MAX_NODES)
            assert (tree.parents <= np.arange(len(tree))).all()
            assert ((tree.tokens >= 0) & (tree.tokens <= 3)).all()
            assert ((tree.confidence > 0) & (tree.confidence < 1)).all()
            assert tree.tokens.dtype == tree.parents.dtype == tree.source.dtype == np.int32
        elif act == "end":
            lookahead.end(row)
            alive.remove(row)
    lookahead.close()
