"""What the speculator makes of proposers: merged trees, what their word is worth, and what they may take in vain."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.native.draft import Drawn
from engines.native.request import Request, SamplingParams
from engines.native.speculation import speculator as module
from engines.native.speculation.budget import NONE, StepCosts, choose, widest
from engines.native.speculation.proposer import History
from engines.native.speculation.speculator import Speculator, drafts_of
from engines.native.speculation.tree import NOTHING, Tree, ancestors, chain, held, merged
from engines.native.speculation.worth import Worth
from engines.native.step import StepPlan, Verified
from tests.engines.driver import Driver
from tests.engines.guessing import Guesser

pytestmark = pytest.mark.speculation
FLAT = [(1, 1.0), (4096, 1.001)]


class Fixed(StepCosts):
    """What passes take changes nothing."""

    def saw_plain(self, rows, seconds):
        pass

    def saw_verify(self, rows, tokens, seconds):
        pass


class Said:
    """Proposes what it is told."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.asked, self.rows = tree, 0, set()

    def begin(self, row, salt, prompt_len):
        self.rows.add(row)

    def propose(self, rows, limit):
        self.asked += 1
        return [self.tree.first(most) for most in limit.tolist()]

    def observe(self, rows, since):
        assert set(rows.tolist()) <= self.rows

    def end(self, row):
        self.rows.remove(row)

    def stats(self):
        return {}

    def close(self):
        """Nothing is kept."""


def straight(*tokens: int, sure: float = 0.9) -> Tree:
    return chain(np.array(tokens, np.int32), np.full(len(tokens), sure, np.float32))


def one_row(proposers, costs=None, clock=lambda: 0.0, padded=False) -> tuple[Speculator, History]:
    history = History(np.zeros((4, 4096), np.int32), np.full(4, 10, np.int32))
    made = Speculator(proposers, history, costs or Fixed(FLAT), padded=padded, trees=True, clock=clock)
    request = Request(id=1, token_ids=np.zeros(10, np.int32), params=SamplingParams(), prompt_len=10)
    request.row = 0
    made.begin(request)
    made.meanwhile(10)
    return made, history


ROW = np.zeros(1, np.int32)


def turn(made: Speculator, history: History, said: list[int]) -> dict[int, Tree]:
    """One pass of row 0 in which `said` is what the model says, as far as guesses hold."""
    trees = made.guesses(ROW, np.array([8], np.int32), False)
    chosen = {} if trees is None else made.choose(trees, 1, 100, free=True)
    plan = StepPlan(ROW, ROW, ROW + 1, sample=np.array([True]))
    count = 1
    if chosen:
        plan.drafts = drafts_of(chosen, ROW)
        plan.count = plan.count + plan.drafts.nodes
        count += len(held(chosen[0], said))
    made.launched(plan, chosen, 1, 0.0)
    made.meanwhile(plan.tokens)
    known = int(history.known[0])
    history.token_ids[0, known : known + count] = said[:count]
    history.known[0] += count
    drawn = Drawn(np.ones(count, np.int64), np.array(said[:count], np.int32), np.arange(count))
    words = np.full((1, 9), -1, np.int32)
    words[0, :count] = said[:count]
    verified = Verified(words, np.array([count], np.int32)) if chosen else None
    made.committed(plan, verified, drawn)
    if chosen:
        assert drawn.sources is not None
        assert drawn.sources.tolist()[-1] == -1
    return chosen


def test_a_source_whose_promises_fail_is_believed_less_until_nothing_of_it_is_tried():
    costs = Fixed([(1, 1.0), (2, 1.2), (64, 8.0)])
    made, history = one_row({"a": Said(straight(1, 2, 3, sure=0.8))}, costs)
    assert turn(made, history, [9] * 9)
    for _ in range(100):
        turn(made, history, [9] * 9)
    assert not made.active
    assert made.counts.accepted == 0


def test_guesses_that_were_not_tried_are_compared_and_come_back():
    costs = Fixed([(1, 1.0), (2, 1.6), (64, 60.0)])
    made, history = one_row({"a": Said(straight(5, 5, 5, sure=0.55))}, costs)
    assert not turn(made, history, [5] * 9)
    tried = [bool(turn(made, history, [5] * 9)) for _ in range(400)]
    assert any(tried)


def test_asking_in_vain_takes_a_bounded_share_of_the_time():
    now = [0.0]

    class Slow(Said):
        def propose(self, rows, limit):
            now[0] += 0.01
            return super().propose(rows, limit)

    slow = Slow(NOTHING)
    made, history = one_row({"a": slow}, clock=lambda: now[0])
    while now[0] < 60:
        turn(made, history, [1])
        now[0] += 0.004
        history.known[0] = min(int(history.known[0]), 4000)
    assert slow.asked >= 10
    assert slow.asked * 0.01 <= 60 * module.OVERHEAD + module.CREDIT_S + 0.05


def test_a_prompt_that_a_proposer_takes_in_parts_is_gone_through_whatever_it_costs():
    now = [0.0]

    class InParts(Said):
        tokens_behind = 0

        def propose(self, rows, limit):
            now[0] += 10 * module.CREDIT_S
            found = super().propose(rows, limit)
            self.tokens_behind = 5 - self.asked
            return found

    parts = InParts(NOTHING)
    made, history = one_row({"a": parts}, clock=lambda: now[0])
    for _ in range(20):
        turn(made, history, [1])
        now[0] += 0.004
    assert parts.asked == 5, "and then it has no credit"


def test_nobody_is_asked_where_no_pass_could_pay_whatever_held():
    dear = Fixed([(1, 1.0), (64, 64.0)])
    said = Said(straight(5, 5, 5))
    made, history = one_row({"a": said}, dear, padded=True)
    assert widest(1, 31, dear) == 0
    for _ in range(20):
        assert not turn(made, history, [5] * 9)
    assert said.asked == 0
    cheap = Fixed([(1, 1.0), (8, 1.5), (9, 9.0)])
    assert widest(1, 31, cheap) == 7
    assert widest(1, 4, cheap) == 3


def test_rows_are_met_and_what_can_wait_is_done_while_a_pass_is_on_its_way():
    events: list[str] = []

    class Told(Guesser):
        def begin(self, row, salt, prompt_len):
            events.append("begin")
            super().begin(row, salt, prompt_len)

        def propose(self, rows, limit):
            events.append("propose")
            return super().propose(rows, limit)

        def meanwhile(self):
            events.append("meanwhile")

    def speculation(history: History) -> Speculator:
        return Speculator({"a": Told(history, 0.9)}, history, Fixed(FLAT), padded=False, trees=True)

    driver = Driver(depth=2, speculation=speculation)
    launch = driver.runner.launch

    def launched(plan):
        events.append("launch")
        return launch(plan)

    driver.runner.launch = launched
    for first in range(3):
        driver.add([first, 2, 3], max_tokens=20)
    driver.run()
    assert driver.scheduler.speculator is not None
    assert driver.scheduler.speculator.counts.accepted > 0
    assert events.count("begin") == 3
    assert events.count("meanwhile") > 3
    for before, event in itertools.pairwise(events):
        assert event not in ("begin", "meanwhile") or before in ("launch", "begin")


def test_a_proposer_that_raises_is_left_out_and_the_others_go_on(caplog):
    class Broken(Said):
        def propose(self, rows, limit):
            raise RuntimeError("out of ideas")

    made, history = one_row({"broken": Broken(NOTHING), "a": Said(straight(3, 4))})
    with caplog.at_level(logging.ERROR):
        chosen = turn(made, history, [3, 4, 9])
    assert chosen[0].tokens.tolist() == [3, 4]
    assert "broken is left out" in caplog.text
    assert made.counts.by_source == {"broken": [0, 0], "a": [2, 2]}


def test_a_head_whose_guesses_hardly_hold_is_told_of_once_h48(caplog, monkeypatch):
    monkeypatch.setattr(module, "POOR_AFTER", 20)
    made, history = one_row({"eagle3": Said(straight(1, sure=0.9))})
    monkeypatch.setattr(Worth, "learn", lambda *_: None)
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            turn(made, history, [9] * 3)
    assert caplog.text.count("look whether it was made for this model") == 1


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=1, max_size=31), min_size=1, max_size=6), st.integers(1, 80))
def test_the_choice_has_the_most_tokens_per_second_and_keeps_to_the_limit(survival, most):
    costs = StepCosts([(1, 1.0), (8, 1.1), (64, 3.0), (512, 20.0)])
    rows = len(survival)
    found = choose(survival, rows, most, costs, padded=False)
    flat = sorted((each for row in survival for each in row), reverse=True)
    rates = [(rows + sum(flat[:nodes])) / costs.verify(rows, rows + nodes) for nodes in range(min(most, len(flat)) + 1)]
    rates[0] = rows / costs.plain(rows)
    if found is NONE:
        assert max(rates) <= rates[0] * 1.06 or max(range(len(rates)), key=rates.__getitem__) > 8
    else:
        assert found.nodes <= most
        assert rates[found.nodes] == pytest.approx(found.gain * rates[0])


trees = st.lists(st.integers(0, 3), min_size=1, max_size=12).flatmap(
    lambda tokens: st.tuples(
        st.just(tokens), st.tuples(*(st.integers(0, node) for node in range(len(tokens)))), st.floats(0.1, 1)
    )
)


def tree_of(drawn) -> Tree:
    tokens, parents, sure = drawn
    count = len(tokens)
    return Tree(
        np.array(tokens, np.int32), np.array(parents, np.int32), np.full(count, sure, np.float32),
        np.zeros(count, np.int32),
    )  # fmt: skip


def paths(tree: Tree) -> set[tuple[int, ...]]:
    found = [()]
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        found.append((*found[parent], token))
    return set(found[1:])


@given(trees, trees, st.integers(1, 31))
def test_merged_trees_have_the_paths_of_both_and_parents_come_first(one, other, most):
    a, b = tree_of(one), tree_of(other)
    both = merged(a, b, 31)
    assert paths(both) == paths(a) | paths(b)
    cut = merged(a, b, most)
    assert len(cut) <= max(most, 0)
    assert paths(cut) <= paths(both)
    assert all(parent <= node for node, parent in enumerate(cut.parents.tolist()))


@given(trees, st.integers(1, 12))
def test_the_likeliest_nodes_are_a_tree_and_keep_their_order(drawn, count):
    tree = tree_of(drawn)
    survival = [own * 0.99**node for node, own in enumerate(tree.survival().tolist())]  # no two are equal
    found, own = tree.likeliest(survival, count)
    best = sorted(survival, reverse=True)[:count]
    assert own == [each for each in survival if each in best]
    keep = np.array([each in best for each in survival])
    wanted = tree.kept(keep)
    assert (found.tokens.tolist(), found.parents.tolist()) == (wanted.tokens.tolist(), wanted.parents.tolist())


@given(trees, st.lists(st.integers(0, 3), max_size=8))
def test_held_is_the_longest_way_that_was_said(drawn, said):
    tree = tree_of(drawn)
    path = held(tree, said)
    assert [int(tree.tokens[node]) for node in path] == said[: len(path)]
    first_only = {tuple(said[:length]) for length in range(1, len(said) + 1)} & paths(tree)
    assert len(path) <= max((len(each) for each in first_only), default=0)


def test_ancestor_words():
    assert ancestors(np.array([0, 1, 0, 3], np.int32)).tolist() == [0b1, 0b11, 0b111, 0b1001, 0b11001]


def test_a_pass_of_a_size_that_was_never_measured_costs_what_plain_ones_do_by_now_and_more():
    """Rows have grown long, or the machine is slow: more tokens are not reckoned from what passes took at start."""
    costs = StepCosts([(1, 0.05), (8, 0.055), (16, 0.09)])
    for _ in range(60):
        costs.saw_plain(8, 0.11)
    assert costs.verify(8, 16) == pytest.approx(costs.plain(8) * 0.09 / 0.055)
    assert costs.verify(8, 8) >= costs.plain(8) > 0.1
    assert choose([[0.6]] * 8, 8, 8, costs, padded=False) is NONE  # it would at what they took at start
