"""Mistral's two forms of calls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from engines.native.serve.parsers.mistral import mistral_call_id
from engines.native.serve.parsers.pieces import CallArguments, CallBegin, CallEnd, Content
from tests.engines.serve.parsers.answers import CUTS, calls, content, cut, parsed, texts

LIST = (
    '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "]"}}, {"name": "get_weather", "arguments": {}, "id": "123456789"}]'
)


@pytest.mark.parametrize(
    "text",
    [
        LIST,
        LIST.replace(" ", ""),
        '[TOOL_CALLS]f{"a":"]"}[TOOL_CALLS]get_weather{}',
        '[TOOL_CALLS]f[ARGS]{"a":"]"}[TOOL_CALLS]get_weather[ARGS]{}',
        '[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{"a":"]"}\n[TOOL_CALLS] get_weather [ARGS] {}',
    ],
)
def test_both_forms(text: str) -> None:
    assert [(name, arguments.replace(" ", "")) for name, arguments in calls("mistral", text)] == [
        ("f", '{"a":"]"}'),
        ("get_weather", "{}"),
    ]
    assert content("mistral", text) is None


def test_text_before_and_after() -> None:
    assert parsed("mistral", ['Sure.[TOOL_CALLS]f{"a": 1} Done']) == [
        Content("Sure."),
        CallBegin(0, "", "f"),
        CallArguments(0, '{"a": 1}'),
        CallEnd(0),
        Content(" Done"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] []",
        "[TOOL_CALLS] [1]",
        "[TOOL_CALLS]f hello",
        "[TOOL_CALLS]f[AR",
        "[TOOL_CALLS]f[ARGS]",
        "[TOOL_CALLS]f[WRONG]{}",
        "[TOOL_CALLS]" + "f" * 600,
        "[TOOL_",
        "a [b] c",
        '{"name": "f", "arguments": {}}',
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert parsed("mistral", [text]) == parsed("mistral", list(text)) == [Content(text)]


def test_ids_are_those_that_mistrals_templates_take() -> None:
    ids = {mistral_call_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(len(each) == 9 and each.isalnum() and each.isascii() for each in ids)


PARTS = ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "f", '{"a": [1, "]"]}', LIST, LIST[:30], ", ", "[", "]", " ", "hello"]


@settings(max_examples=60, deadline=None)
@given(text=texts(PARTS), places=CUTS)
def test_any_cutting_gives_the_same_pieces(text: str, places: list[int]) -> None:
    assert parsed("mistral", list(cut(text, places))) == parsed("mistral", [text]) == parsed("mistral", list(text))
