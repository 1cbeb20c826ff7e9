"""Calls as a Python list."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from engines.native.serve.parsers.pieces import Content
from tests.engines.serve.parsers.answers import CUTS, calls, content, cut, parsed, shown_at_once, texts

CALLS = """[get_weather(city="Oslo [N]", days=[1, {'a': None}], deep={"x": (1, true)}), f(), math.factorial(n=-5)]"""


def test_literals_become_json() -> None:
    assert [(name, json.loads(arguments)) for name, arguments in calls("pythonic", f" {CALLS}\n")] == [
        ("get_weather", {"city": "Oslo [N]", "days": [1, {"a": None}], "deep": {"x": [1, True]}}),
        ("f", {}),
        ("math.factorial", {"n": -5}),
    ]
    assert content("pythonic", CALLS) is None
    assert content("pythonic", f"{CALLS} done") == " done"
    assert parsed("pythonic", [f"{CALLS} \n"]) == parsed("pythonic", list(f"{CALLS} \n")) == parsed("pythonic", [CALLS])


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "[unknown(a=1)]",
        "[f(a=1), unknown(a=1)]",
        "[f(1)]",
        "[f(a=g)]",
        "[f(a=open('x'))]",
        "[f(**{'a': 1})]",
        "[f(a=1e999)]",
        "[f(a={1})]",
        "[f(a=b'x')]",
        "[f(a='\\ud83d')]",
        "[f(a='it')s]",
        "[f(a=1",
        "[f(a=" + "[" * 3000 + "]" * 3000 + ")]",
        "See f(a=1)",
        "text [f(a=1)]",
        "",
        " \n",
    ],
)
def test_what_is_no_list_of_literal_calls_is_content(text: str) -> None:
    wanted = [Content(text)] if text else []
    assert parsed("pythonic", [text]) == parsed("pythonic", list(text)) == wanted


def test_other_lists_are_not_held_back() -> None:
    assert shown_at_once("pythonic", "[1, 2") == "[1, 2"
    assert shown_at_once("pythonic", "[links](") == "[links]("


PARTS = [CALLS, CALLS[:40], "[", "f(", "a=", "'it\\'s'", '"]"', "1", ")", "]", ", ", " ", "\n", "hello"]


@settings(max_examples=60, deadline=None)
@given(text=texts(PARTS), places=CUTS)
def test_any_cutting_gives_the_same_pieces(text: str, places: list[int]) -> None:
    assert parsed("pythonic", list(cut(text, places))) == parsed("pythonic", [text]) == parsed("pythonic", list(text))
