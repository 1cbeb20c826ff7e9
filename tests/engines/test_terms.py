"""What the door refuses of a list of terms, without a tokenizer."""

from __future__ import annotations

import pytest

from engines.terms import MAX_LENGTH, problems


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        (" REIT", "white space"),
        ("REIT\n", "white space"),
        ("net  asset", "single blanks"),
        ("net\tasset", "single blanks"),
        ("net\u00a0asset", "single blanks"),
        ("x" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}"),
        ("a\x00b", "no text"),
        ("a\ue000b", "no text"),
        (f"a{chr(0xD800)}b", "no text"),
        ("a\ufffdb", "no text"),
        ("---", "no letter"),
    ],
)
def test_what_cannot_be_a_term_is_named(term, said):
    assert said in problems(["fine", term])[1]


def test_the_second_of_two_equal_terms_names_the_first():
    assert problems(["EBITDA", "REIT", "EBITDA"]) == {2: "is there twice, first as terms[0]"}


def test_terms_of_every_script_pass():
    assert (
        problems(["quantitative easing", "S&P 500", "市盈率", "A股", "Société Générale", "10-K", "C++", "금리"]) == {}
    )
