"""Where a text is complete, in English and Chinese, however it is cut into pieces."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.native.serve.completeness import SCANNERS


def ended(kind: str, pieces: list[str]) -> tuple[str, bool]:
    scanner = SCANNERS[kind]()
    sent = ""
    for piece in pieces:
        text, complete = scanner.push(piece)
        sent += text
        if complete:
            return sent, True
    return sent + scanner.flush(), False


SENTENCES = [
    # text, and what is left of it (None: all, and not complete)
    ("It is so. And then", "It is so."),
    ("It is so.\nAnd", "It is so."),
    ("Is it? Yes", "Is it?"),
    ("Wow!!! Yes", "Wow!!!"),
    ("What?! No", "What?!"),
    ("It is so.", None),
    ("Pi is 3.14 or so", None),
    ("Pi is 3.14. Next", "Pi is 3.14."),
    ("In 2024. Next", "In 2024."),
    ("1. First do this", None),
    ("1. First do this. Then", "1. First do this."),
    ("Some fruit, e.g. Apples are", None),
    ("The U.S. Senate met. It", "The U.S. Senate met."),
    ("Dr. Smith and J. Doe agree. So", "Dr. Smith and J. Doe agree."),
    ("So do I. And", "So do I."),
    ("About 5 cm approx. as said", None),
    ("Wait... What is it", None),
    ("Wait… What is it", None),
    ("Wait...? Yes", "Wait...?"),
    ("Open example.com/a?b=c now", None),
    ('He said "Go. Now. Please" and left. So', 'He said "Go. Now. Please" and left.'),
    ('He said "Go." Then', 'He said "Go."'),
    ('"Stop!" he said. So', '"Stop!" he said.'),
    ("He said “Go. Now.” Then", "He said “Go. Now.”"),
    ("It (see p. 5. Or 6.) is so. And", "It (see p. 5. Or 6.) is so."),
    ("It is so (see above.) And", "It is so (see above.)"),
    ("It's the dogs' home. And", "It's the dogs' home."),
    ("It’s so. And", "It’s so."),
    ("**It is so.** And", "**It is so.**"),
    ("Never closed (\n\nIt is so. And", "Never closed (\n\nIt is so."),
    ("  \n It is so. And", "  \n It is so."),
    ("... and so. Then", "... and so."),
    ("`a. B` is code. So", "`a. B` is code."),
    ("今天很好。明天", "今天很好。"),
    ("今天很好。 明天", "今天很好。"),
    ("真的吗？！是的", "真的吗？！"),
    ("他说：“好。走吧。”然后", "他说：“好。走吧。”"),
    ("他说“好。”就走了。然后", "他说“好。”"),
    ("圆周率是3.14，约等于3。然后", "圆周率是3.14，约等于3。"),
    ("然后……他走了。接着", "然后……他走了。"),
    ("这个（见上。下）很好。然后", "这个（见上。下）很好。"),
    ("今天很好（真的。）是。明天", "今天很好（真的。）是。"),
    ("《好。书》很好！然后", "《好。书》很好！"),
    ("好。OK", "好。"),
    ("。。开头。然后", "。。开头。"),
]


@pytest.mark.parametrize(("text", "left"), SENTENCES)
def test_sentences_whole_and_character_by_character(text: str, left: str | None) -> None:
    wanted = (text, False) if left is None else (left, True)
    assert ended("sentence", [text]) == wanted
    assert ended("sentence", list(text)) == wanted


PARAGRAPHS = [
    ("One line\nand two\n\nmore", "One line\nand two"),
    ("\n\n  \nOne\n \t\nmore", "\n\n  \nOne"),
    ("One\n  indented\n", None),
    ("One\r\n\r\nmore", "One\r"),
    ("第一段。\n\n第二段", "第一段。"),
    ("Code:\n```py\na\n\nb\n```\n\nmore", "Code:\n```py\na\n\nb\n```"),
    ("a ``` b\n\nmore", "a ``` b"),
    ("", None),
    ("\n\n\n", None),
]


@pytest.mark.parametrize(("text", "left"), PARAGRAPHS)
def test_paragraphs_whole_and_character_by_character(text: str, left: str | None) -> None:
    wanted = (text, False) if left is None else (left, True)
    assert ended("paragraph", [text]) == wanted
    assert ended("paragraph", list(text)) == wanted


VALUES = [
    ('{"a": [1, 2]} more', '{"a": [1, 2]}'),
    ("[1, [2], 3]]", "[1, [2], 3]"),
    ('Here it is:\n```json\n{"a": "}"}\n```', 'Here it is:\n```json\n{"a": "}"}'),
    ('{"a": "\\"}\\\\"} x', '{"a": "\\"}\\\\"}'),
    ('As [see below] says {"a": 1} x', 'As [see below] says {"a": 1}'),
    ('{"a": "broken\nline"} {"b": 2} x', '{"a": "broken\nline"} {"b": 2}'),
    ('{"a": 1', None),
    ('{"a": 1]', None),
    ("no value", None),
    ('{"名": "值。"}然后', '{"名": "值。"}'),
]


@pytest.mark.parametrize(("text", "left"), VALUES)
def test_json_whole_and_character_by_character(text: str, left: str | None) -> None:
    wanted = (text, False) if left is None else (left, True)
    assert ended("json", [text]) == wanted
    assert ended("json", list(text)) == wanted


alphabet = st.text('ab. \n?。！“”"()[]{}`*e.g1…', max_size=40)


@given(st.sampled_from(sorted(SCANNERS)), alphabet, st.lists(st.integers(0, 40), max_size=8))
def test_any_split_ends_in_the_same_place_and_loses_nothing(kind: str, text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    sent, complete = ended(kind, pieces)
    assert (sent, complete) == ended(kind, list(text))
    assert text.startswith(sent)
    assert complete or sent == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=3) | st.dictionaries(st.text(max_size=4), json_values, max_size=3), st.booleans())
def test_any_json_value_ends_with_its_last_bracket(value: object, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert ended("json", list(f"{text} and more }}")) == (text, True)


@pytest.mark.parametrize("kind", sorted(SCANNERS))
def test_what_comes_too_early_ends_nothing(kind: str) -> None:
    scanner = SCANNERS[kind]()
    first, rest = {
        "sentence": ("One is. Two", " is. Three"),
        "paragraph": ("One\n\nTwo", "\n\nThree"),
        "json": ("[1] [2", "] [3]"),
    }[kind]
    assert scanner.push(first, counts=False) == (first, False)
    text, complete = scanner.push(rest)
    assert complete
    assert first + text == {"sentence": "One is. Two is.", "paragraph": "One\n\nTwo", "json": "[1] [2]"}[kind]
