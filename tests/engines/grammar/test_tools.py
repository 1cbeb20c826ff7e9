"""A forced call is one that the model's own parser reads."""

from __future__ import annotations

import json
import random
from typing import Any

import llguidance
import numpy as np
import pytest

from engines.native.grammar.matcher import Matcher, fill
from engines.native.grammar.spec import BadGrammar
from engines.native.grammar.tools import FORMATS, MAX_CALLS, tools_grammar
from engines.native.serve.parsers.pieces import CallArguments, CallBegin, CallEnd
from engines.native.serve.parsers.registry import TOOL_PARSERS
from tests.engines.grammar.tokens import END, SIZE, TOKENS, TOOL, VOCABULARY, accepts, compiled

EXECUTOR = llguidance.LLExecutor(1)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "maximum": 9}},
                "required": ["city"],
                "additionalProperties": False,
                "$defs": {"city": {"enum": ["Oslo", "Zürich", 'a "b"']}},
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


def written(source: str, seed: int) -> str:
    """A random walk through the masks of the grammar, to its end."""
    made = Matcher(compiled(source), VOCABULARY, [END], None, False)
    draw, text = random.Random(seed), b""
    fill([made], EXECUTOR)
    while not made.complete:
        tokens = np.flatnonzero(np.unpackbits(made.bits.view(np.uint8), bitorder="little")[:SIZE]).tolist()
        token = END if END in tokens else draw.choice(tokens)
        if token == END:
            break
        text += TOKENS[token]
        made.advance(token)
        fill([made], EXECUTOR)
        assert made.error == ""
    return text.decode()


def calls(text: str, parser: str) -> list[tuple[str, Any]]:
    made = TOOL_PARSERS[parser]({"get_weather", "now"})
    pieces = [piece for character in text for piece in made.push(character)] + made.finish()
    assert all(isinstance(piece, CallBegin | CallArguments | CallEnd) for piece in pieces), pieces
    found: dict[int, list[str]] = {}
    for piece in pieces:
        if isinstance(piece, CallBegin):
            found[piece.index] = [piece.name, ""]
        elif isinstance(piece, CallArguments):
            found[piece.index][1] += piece.text
    return [(name, json.loads(arguments)) for name, arguments in found.values()]


@pytest.mark.parametrize("form", list(FORMATS))
def test_whatever_the_grammar_allows_the_parser_reads(form: str) -> None:
    source, names = tools_grammar(TOOLS, "required", form), set()
    for seed in range(25):
        for name, arguments in calls(written(source, seed), form):
            names.add(name)
            if name == "get_weather":
                assert arguments["city"] in ("Oslo", "Zürich", 'a "b"')
            else:
                assert arguments == {}
    assert names == {"get_weather", "now"}


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_named_function_is_called_once(form: str) -> None:
    source = tools_grammar(TOOLS, {"type": "function", "function": {"name": "now"}}, form)
    for seed in range(5):
        assert calls(written(source, seed), form) == [("now", {})]


def test_the_text_of_each_format() -> None:
    hermes = tools_grammar(TOOLS, "required", "hermes")
    one = f"<tool_call>\n{CALL}\n</tool_call>"
    assert accepts(hermes, one)
    assert accepts(hermes, "\n".join([one] * 2))
    assert accepts(hermes, "\n".join([one] * MAX_CALLS))
    assert not accepts(hermes, "\n".join([one] * (MAX_CALLS + 1)))
    assert not accepts(hermes, CALL)
    assert not accepts(hermes, one.replace("Oslo", "Rome"))
    assert accepts(tools_grammar(TOOLS, "required", "mistral"), f"[TOOL_CALLS][{CALL}, {CALL}]")
    llama = CALL.replace("arguments", "parameters")
    assert accepts(tools_grammar(TOOLS, "required", "llama3"), f"{llama}; {llama}")
    assert not accepts(tools_grammar(TOOLS, "required", "hermes", parallel=False), "\n".join([one] * 2))


def test_a_tag_that_is_a_special_token_is_that_token() -> None:
    source = tools_grammar(TOOLS, "required", "hermes", special_id={"<tool_call>": TOOL}.get)
    matcher = compiled(source)
    assert matcher.validate_tokens([ord("<")]) == 0
    assert matcher.consume_tokens([TOOL, *f"\n{CALL}\n</tool_call>".encode()])
    assert matcher.is_accepting()


@pytest.mark.parametrize(
    ("tools", "choice", "form", "reason"),
    [
        (TOOLS, "required", "pythonic", "pythonic"),
        (TOOLS, {"type": "function", "function": {"name": "other"}}, "hermes", "'other'"),
        ([], "required", "hermes", "no tools"),
        ([{"function": {"name": "f", "parameters": {"properties": {"a": {"not": {}}}}}}], "required", "hermes",
         "'f': #/properties/a/not"),
        ([{"function": {"name": "f", "parameters": {"type": "string"}}}], "required", "hermes", "of an object"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(tools, choice, form: str, reason: str) -> None:
    with pytest.raises(BadGrammar, match=reason):
        tools_grammar(tools, choice, form)
