"""Regexes, choices and grammars: what they accept, what is refused, and that none of them ends the process."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.grammar import sources
from engines.native.grammar.spec import BadGrammar
from tests.engines.grammar.tokens import accepts, attempt, compiled


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"\d{4}-\d{2}-\d{2}", ["2026-11-29"], ["2026-1-29", "x2026-11-29", "2026-11-29\n"]),
        (r"^a+$", ["a", "aaa"], ["", "b", "ab"]),
        (r"(yes|no)/\\?", ["yes/", "no/\\"], ["yes", "no\\"]),
        ("a\nb|é😀", ["a\nb", "é😀"], ["anb", "é"]),
        (r"(?i)ja", ["JA", "ja"], ["j"]),
    ],
)
def test_regex_matches_the_whole_answer(pattern: str, good: list[str], bad: list[str]) -> None:
    source = sources.from_regex(pattern)
    assert all(accepts(source, text) for text in good)
    assert not any(accepts(source, text) for text in bad)


def test_choices_are_taken_to_the_letter() -> None:
    choices = ["yes", "no", 'a "b"\\n', "x\ny", "a|b", "{1}", "日本", "😀", "yes, please", "%json"]
    source = sources.from_choice(choices)
    assert all(accepts(source, choice) for choice in choices)
    assert not any(accepts(source, text) for text in ["", "ye", "a", "b", "1", "yesno", "yes,"])


def test_lark_and_ebnf() -> None:
    lark = sources.from_grammar('start: "SELECT " NAME (", " NAME)*\nNAME: /[a-z]+/')
    ebnf = sources.from_grammar('root ::= "SELECT " name (", " name)*\nname ::= [a-z]+')
    for source in (lark, ebnf):
        assert accepts(source, "SELECT a, bc")
        assert not accepts(source, "SELECT a,")
    inside = sources.from_grammar('start: "x=" json\njson: %json {"type": "integer", "minimum": 3}')
    assert accepts(inside, "x=4")
    assert not accepts(inside, "x=2")


@pytest.mark.parametrize(
    ("make", "given", "reason"),
    [
        (sources.from_regex, "(a", "unclosed group"),
        (sources.from_regex, "(?<=a)b", "look-around"),
        (sources.from_regex, r"(a)\1", "backreferences"),
        (sources.from_regex, "", "empty"),
        (sources.from_regex, "a" * (sources.MAX_SOURCE + 1), "at most"),
        (sources.from_choice, [], "nothing to choose"),
        (sources.from_choice, ["a", ""], "choice 1 is empty"),
        (sources.from_choice, [str(number) for number in range(2000)], "at most"),
        (sources.from_grammar, " ", "empty"),
        (sources.from_grammar, "start: unknown_rule", "unknown_rule"),
        (sources.from_grammar, 'A: "a" A\nstart: A', "circular"),
        (sources.from_grammar, "root ::= (", "EBNF"),
        (sources.from_grammar, 'start: %json {"not": {}}', "'not'"),
        (sources.from_grammar, 'start: %json {"foo": 1}', "'foo'"),
        (sources.from_grammar, "start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
        (sources.from_grammar, "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "EBNF"),
        (sources.from_grammar, "\n".join(f'r{i}: "a"' for i in range(2000)), "rules"),
    ],
)
def test_what_is_refused_has_a_reason(make, given, reason: str) -> None:
    with pytest.raises(BadGrammar, match=re.escape(reason)):
        compiled(make(given))


@pytest.mark.parametrize("name", ["r", "R"])
def test_the_longest_chain_of_rules_compiles(name: str) -> None:
    rules = [f'{name}{index}: "a" {name}{index + 1}' for index in range(sources.MAX_RULES - 2)]
    text = "\n".join([f"start: {name}0", *rules, f'{name}{sources.MAX_RULES - 2}: "b"'])
    assert accepts(sources.from_grammar(text), "a" * (sources.MAX_RULES - 2) + "b")


def test_blanks_between_tokens_of_json_are_bounded() -> None:
    source = sources.from_schema({"type": "array", "items": {"type": "integer"}})
    for text in ("[1,2]", "[1, 2]", "[\n  1,\n  2\n]", "[\r\n\t1 , 2]", "[]"):
        assert accepts(source, text)
    for text in ("[1,  2]", "[\n\t 1]", "[\n\n1]", "[1]\n", " [1]", "[" + "\n" + " " * 41 + "1]"):
        assert not accepts(source, text)


def test_blank_lines_cost_nothing() -> None:
    begun = time.perf_counter()
    with pytest.raises(BadGrammar):
        sources.from_grammar("\n" * 260_000 + "x")
    assert time.perf_counter() - begun < 2, "it took time with the square of its length"


def test_flat_giants_compile() -> None:
    sizes = 20_000
    assert compiled(sources.from_grammar("start: " + '"a" ' * sizes)) is not None
    assert compiled(sources.from_regex("a" * sizes)) is not None
    enum = [f"value {number * 7919 % 100003}" for number in range(5000)]
    assert accepts(sources.from_schema({"enum": enum}), json.dumps(enum[77]))


pieces = st.sampled_from(
    ["start", "root", ":", "::=", "|", "(", ")", '"a"', "/b+/", "[a-z]", "*", "+", "?", "{1,9}", "~2", "\n", " ", "A",
     "%json", "{}", '{"type": "integer"}', "%regex", "%llguidance", "<|im_end|>", "<[3]>", "<[999999]>", "%ignore", "r",
     "#", "\\", "'", "[suffix=\"x\"]", "[max_tokens=3]", "é", "\x00", "&", "~", "(?i)", "\\p{L}", "{99999}"]
)  # fmt: skip
soup = st.lists(pieces | st.text(max_size=3), max_size=14).map("".join)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["start: ", "root ::= ", ""]), soup)
def test_any_text_gives_a_grammar_or_a_reason(head: str, text: str) -> None:
    for make in (sources.from_grammar, sources.from_regex):
        matcher, reason = attempt(make, head + text)
        if matcher is None:
            assert reason
        else:
            matcher.compute_bitmask()
            assert isinstance(matcher.get_error(), str)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1, max_size=5))
def test_any_choice_is_accepted(choices: list[str]) -> None:
    source = sources.from_choice(choices)
    assert all(accepts(source, choice) for choice in choices)
