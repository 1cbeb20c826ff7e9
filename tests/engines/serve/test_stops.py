"""Stop strings. Names carry the case of cases/engine.md."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.native.serve.stops import StopMatcher


def run(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    sent = []
    for piece in pieces:
        text, met = matcher.push(piece)
        sent.append(text)
        if met:
            return sent, True
    return [*sent, matcher.flush()], False


def test_b2_stop_over_three_tokens_that_ends_inside_one_is_cut_exactly() -> None:
    assert run(["Hello ", "EN", "D_", "NOW rest"], ["END_NOW"]) == (["Hello ", "", "", ""], True)
    assert run(["a", "b<", "stop", "> tail"], ["<stop>"]) == (["a", "b", "", ""], True)


def test_b2_what_only_looked_like_a_stop_is_sent_late_but_whole() -> None:
    assert run(["x EN", "TER"], ["END"]) == (["x ", "ENTER", ""], False)
    assert run(["aab", "aab"], ["aabaac"]) == (["", "aab", "aab"], False)


def test_b3_held_back_tail_is_flushed_at_the_end() -> None:
    assert run(["one ", "two ##"], ["###"]) == (["one ", "two ", "##"], False)


def test_earliest_of_several_stops_wins() -> None:
    assert run(["a stop b end"], ["end", "stop"]) == (["a "], True)


@given(st.lists(st.text("ab", max_size=4), max_size=12), st.lists(st.text("ab", min_size=1, max_size=5), max_size=3))
def test_any_split_gives_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    sent, met = run(pieces, stops)
    text, whole = "".join(sent), "".join(pieces)
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    if met:
        assert any(whole[len(text) :].startswith(stop) for stop in stops)
    else:
        assert text == whole


def test_the_string_that_was_met_is_named() -> None:
    matcher = StopMatcher(["bcd", "ab", "abc", "zz"])
    assert matcher.met is None
    assert matcher.push("xyabcd") == ("xy", True)
    assert matcher.met == "ab"  # complete first, as if the text had come character by character
    matcher = StopMatcher(["cd", "bcd"])
    assert matcher.push("abcd") == ("a", True)
    assert matcher.met == "bcd"  # complete together, and the longest
