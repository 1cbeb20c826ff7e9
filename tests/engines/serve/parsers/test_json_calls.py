"""Hermes, Qwen and Llama 3: calls as JSON objects. Case G2 of cases/engine.md: calls are well formed, or content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.serve.parsers.pieces import CallArguments, CallBegin, CallEnd, Content, joined
from engines.native.serve.parsers.registry import TOOL_PARSERS
from tests.engines.serve.parsers.answers import CUTS, NAMES, calls, content, cut, parsed, shown_at_once, texts

WEATHER = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
LLAMA = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'
OSLO = ("get_weather", '{"city": "Oslo"}')


def tagged(*objects: str) -> str:
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in objects)


def test_one_call_between_text() -> None:
    assert parsed("hermes", [f"Let me look.\n{tagged(WEATHER)}\nDone."]) == [
        Content("Let me look."),
        CallBegin(0, "", "get_weather"),
        CallArguments(0, '{"city": "Oslo"}'),
        CallEnd(0),
        Content("\nDone."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        tagged(WEATHER, WEATHER),
        f"<tool_call>{WEATHER}</tool_call><tool_call>{WEATHER}</tool_call>",
        f"<tool_call>{WEATHER}\n{WEATHER}</tool_call>",  # both in one tag, as Qwen does at times
        f"<tool_call>{WEATHER}<tool_call>{WEATHER}",  # never closed
        f"<tools>\n{WEATHER}\n</tools>\n<tools>{WEATHER}</tools>",  # Qwen2.5-Coder
        f"```json\n{WEATHER}\n```\n```json\n{WEATHER}\n```",
        f"{WEATHER}\n{WEATHER}",
        f"[{WEATHER}, {WEATHER}]",
        f"```json\n[\n{WEATHER},\n{WEATHER}\n]\n```",
        f"<tool_call>[{WEATHER},{WEATHER}]</tool_call>",
    ],
)
def test_two_calls(text: str) -> None:
    assert calls("hermes", text) == [OSLO, OSLO]
    assert content("hermes", text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"<|python_tag|>{LLAMA}; {LLAMA}",
        f"{LLAMA}; {LLAMA}",
        f"{LLAMA};{LLAMA}\n",
        f"<|python_tag|>{LLAMA}<|python_tag|>{LLAMA}",
        '{"type": "function", ' + LLAMA[1:] + "\n" + LLAMA,
    ],
)
def test_two_calls_of_llama(text: str) -> None:
    assert calls("llama3", text) == [OSLO, OSLO]
    assert content("llama3", text) is None


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "}{][\\"}", "b": [{"c": {}}, "]"]}',
        '{"a": "</tool_call>", "b": "<tool_call>"}',
        '{"a": "\\u00e9\\ud83d\\ude00 é😀", "b": "\\\\"}',
        '{"a": "line\\nline", "b": {"c": {"d": {"e": null}}}}',
        '{ "a" : 1.5e3 , "b" : true }',
        "{}",
    ],
)
def test_arguments_come_out_as_written(arguments: str) -> None:
    for text in (f'{{"name": "f", "arguments": {arguments}}}', f'{{"arguments": {arguments}, "name": "f"}}'):
        assert calls("hermes", f"<tool_call>{text}</tool_call>") == [("f", arguments)]
        assert calls("llama3", f"<|python_tag|>{text}") == [("f", arguments)]


def test_arguments_that_are_a_string_are_the_object_in_it() -> None:
    text = tagged(json.dumps({"name": "f", "arguments": json.dumps({"a": 'é"'})}))
    assert [(name, json.loads(arguments)) for name, arguments in calls("hermes", text)] == [("f", {"a": 'é"'})]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": null}', "{}"),
        ('{"name": "f", "arguments": {"a": 1}', '{"a": 1}'),  # one brace too few
        ('{"name": "f", "arguments": {"a": 1}}}', '{"a": 1}'),  # one too many
        ('{"name": "f", "arguments": {"a": 1},}', '{"a": 1}'),
        ('{"id": 7, "note": [1, {"x": "}"}], "name": "f", "arguments": {"a": 1}}', '{"a": 1}'),
        ('{"name": "\\u0066", "arguments": {"a": 1}}', '{"a": 1}'),
    ],
)
def test_what_is_nearly_right_is_a_call(written: str, arguments: str) -> None:
    assert calls("hermes", tagged(written)) == [("f", arguments)]


MALFORMED = [
    "<tool_call></tool_call>",
    "<tool_call>call f</tool_call>",
    "<tool_call>[1, 2]</tool_call>",
    '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "f", "arguments": 5}</tool_call>',
    '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "\\ud83d", "arguments": {}}</tool_call>',  # half a surrogate pair
    '<tool_call>{"name": "\\x", "arguments": {}}</tool_call>',
    '<tool_call>{"arguments": {"a": 1}}</tool_call>',
    "<tool_call>{name: 'f'}</tool_call>",
    '<tool_call>{"name" "f"}</tool_call>',
    '<tool_call>{"name": "f" "arguments": {}}</tool_call>',
    '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>',
    '<tool_call>{"nam',
    '<tool_call>{"name": "get_wea',
    "<tool_call>",
    "<tool_ca",
    "a < b, <tool>, </tool_call>",
    '{"name": "unknown", "arguments": {}}',
    '{"name": "f"}',
    '{"city": "Oslo", "name": "f", "arguments": {}}',
    '```json\n{"users": [1, 2]}\n```',
    "```python\nprint({})\n```",
    "```json\n[1, 2]\n```",
    "[1, 2]",
    '[{"users": 1}]',
    "[[",
    "  \n",
]


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_call_is_content_character_for_character(text: str) -> None:
    for before, after in (("", ""), ("Well: ", " – so much for that.")):
        whole = before + text + after
        assert parsed("hermes", [whole]) == parsed("hermes", list(whole)) == [Content(whole)]


def test_after_a_malformed_call_a_good_one_is_still_seen() -> None:
    assert calls("hermes", f"<tool_call>oops</tool_call>{tagged(WEATHER)}") == [OSLO]
    assert content("hermes", f"<tool_call>oops</tool_call>{tagged(WEATHER)}") == "<tool_call>oops</tool_call>"


def test_a_call_that_max_tokens_cut_off_keeps_what_came() -> None:
    assert parsed("hermes", ['<tool_call>\n{"name": "f", "arguments": {"a": "Os']) == [
        CallBegin(0, "", "f"),
        CallArguments(0, '{"a": "Os'),
        CallEnd(0),
    ]
    assert calls("hermes", f"<tool_call>{WEATHER}</tool_c") == [OSLO]  # cut off in the end tag
    assert content("hermes", f"<tool_call>{WEATHER}</tool_c") is None
    assert parsed("hermes", [f"[{WEATHER},"]) == parsed("hermes", [WEATHER])
    assert parsed("llama3", [f"{LLAMA}; "]) == parsed("llama3", [LLAMA])


def test_arguments_stream_as_they_come() -> None:
    parser = TOOL_PARSERS["hermes"](NAMES)
    assert parser.push('<tool_call>\n{"name": "f", "arguments": ') == []
    begin, first = joined(parser.push('{"text": "long'))
    assert isinstance(begin, CallBegin)
    assert first == CallArguments(0, '{"text": "long')
    assert parser.push(" and longer") == [CallArguments(0, " and longer")]
    assert parser.push('"}') == [CallArguments(0, '"}')]
    assert parser.push("}") == [CallEnd(0)]


def test_only_what_may_be_a_call_is_held_back() -> None:
    assert shown_at_once("hermes", "a < b and {c}") == "a < b and {c}"
    assert shown_at_once("hermes", "so\n<tool") == "so"
    assert shown_at_once("hermes", "```js") == ""
    assert shown_at_once("hermes", "```python\n") == "```python"
    assert shown_at_once("llama3", "[1") == "[1"
    assert shown_at_once("llama3", '{"answer"') == '{"answer"'
    assert shown_at_once("llama3", '{"name": "Bob"') == '{"name": "Bob"'


def test_llama_code_behind_the_tag_is_content() -> None:
    assert content("llama3", "<|python_tag|>print(1)") == "<|python_tag|>print(1)"


PARTS = [
    *("<tool_call>", "</tool_call>", "<tools>", "</tools>", "```json", "```", "<|python_tag|>", ";", "\n", " "),
    *(WEATHER, LLAMA, WEATHER[:20], '{"name": "f", "arguments": ', '{"a": "}\\"', "hello", '"', "}", "[", "]", ","),
]


@settings(max_examples=100, deadline=None)
@given(text=texts(PARTS), places=CUTS, parser=st.sampled_from(["hermes", "llama3"]))
def test_any_cutting_gives_the_same_pieces(text: str, places: list[int], parser: str) -> None:
    whole = parsed(parser, [text])
    assert parsed(parser, list(cut(text, places))) == whole
    assert parsed(parser, list(text)) == whole


@settings(max_examples=100, deadline=None)
@given(text=texts(PARTS), parser=st.sampled_from(["hermes", "llama3"]))
def test_nothing_is_doubled_or_out_of_order(text: str, parser: str) -> None:
    """What comes out stands in the text in this order, calls are closed in their order, and a text without calls comes
    out whole."""
    pieces, at, opened = parsed(parser, [text]), 0, 0
    for piece in pieces:
        match piece:
            case Content(said) | CallArguments(_, said) if said not in ("{}",):
                found = text.find(said.strip(), at)
                assert found >= 0
                at = found + len(said.strip())
            case CallBegin(index):
                assert index == opened
            case CallEnd(index):
                assert index == opened
                opened += 1
    if not opened and text:
        assert pieces == [Content(text)]
