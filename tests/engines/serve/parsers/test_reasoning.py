"""Reasoning apart from the answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.serve.parsers.reasoning import ReasoningSplitter, ReasoningTags
from tests.engines.serve.parsers.answers import CUTS, cut, texts

TAGS = ReasoningTags("<think>", "</think>")


def split(chunks: list[str], opened: bool = False) -> tuple[str, str]:
    """(reasoning, answer); asserts that no reasoning comes after the answer began."""
    splitter = ReasoningSplitter(TAGS, opened)
    reasoning = answer = ""
    for part in [*(splitter.push(chunk) for chunk in chunks), splitter.finish()]:
        assert not (part[0] and answer)
        reasoning, answer = reasoning + part[0], answer + part[1]
    return reasoning, answer


@pytest.mark.parametrize(
    ("text", "opened", "wanted"),
    [
        ("<think>\nso\n</think>\n\nyes ", False, ("so", "yes ")),
        (" \n<think>so</think>yes", False, ("so", "yes")),
        ("so\n</think>\n\nyes", True, ("so", "yes")),
        ("<think>\nso</think>yes", True, ("so", "yes")),  # the template opened it, and the model again
        ("\n\nso </think>", True, ("so", "")),
        ("<think></think>yes", False, ("", "yes")),
        ("<think>a < b </thin </think>yes", False, ("a < b </thin", "yes")),
        ("<think>cut off", False, ("cut off", "")),
        ("<think>cut off </thi", False, ("cut off </thi", "")),
        ("cut off", True, ("cut off", "")),
        ("yes", False, ("", "yes")),
        ("  yes", False, ("", "  yes")),
        ("yes <think>no</think>", False, ("", "yes <think>no</think>")),
        ("<think>a</think>b</think>c<think>d", False, ("a", "b</think>c<think>d")),
        ("<thi", False, ("", "<thi")),
        ("<thinking>yes", False, ("", "<thinking>yes")),
        ("", False, ("", "")),
        (" ", False, ("", " ")),
        ("yes </think>", False, ("", "yes </think>")),
    ],
)
def test_split(text: str, opened: bool, wanted: tuple[str, str]) -> None:
    assert split([text], opened) == wanted
    assert split(list(text), opened) == wanted


PARTS = ["<think>", "</think>", "<thi", "nk>", "</", " ", "\n\n", "so", "yes"]


@settings(max_examples=100, deadline=None)
@given(text=texts(PARTS), places=CUTS, opened=st.booleans())
def test_any_cutting_gives_the_same_and_only_tags_and_white_space_go(
    text: str, places: list[int], opened: bool
) -> None:
    whole = split([text], opened)
    assert split(list(cut(text, places)), opened) == whole
    bare = "".join(text.split())
    without = [bare.removeprefix("<think>"), bare]
    without += [each.replace("</think>", "", 1) for each in without]
    assert "".join("".join(whole).split()) in without


def test_reasoning_is_not_held_back() -> None:
    splitter = ReasoningSplitter(TAGS, False)
    assert splitter.push("<think>one ") == ("one", "")
    assert splitter.push("two </b") == (" two </b", "")
    assert splitter.push(" </th") == ("", "")
    assert splitter.push("ree") == (" </three", "")
    assert splitter.thinking
    assert splitter.push("</think>") == ("", "")
    assert not splitter.thinking
    assert splitter.push(" \n") == ("", "")
    assert splitter.push("yes ") == ("", "yes ")


def test_what_opened_the_reasoning() -> None:
    assert TAGS.opened_by("<|assistant|><think>\n", None)
    assert not TAGS.opened_by("<think>\n\n</think>\n\n", None)  # Qwen3 with enable_thinking false
    assert not TAGS.opened_by("<|user|>what is <think>?<|assistant|>\n", None)
    assert TAGS.opened_by("…<think>I was", {"content": "<think>I was"})
    assert not TAGS.opened_by("…", {"content": "<think>I was</think>so"})
    assert not TAGS.opened_by("…", {"content": None})
