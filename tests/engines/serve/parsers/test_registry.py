"""Which parser a model gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.native.config import SERVE_OPTIONS, ConfigError, options_schema
from engines.native.serve.options import read_options
from engines.native.serve.parsers.mistral import MistralCalls
from engines.native.serve.parsers.reasoning import ReasoningTags
from engines.native.serve.parsers.registry import REASONING_TAGS, TOOL_PARSERS, reasoning_tags, tags_of, tool_parser

TEMPLATES = Path(__file__).parents[3] / "data" / "chat_templates"
QWEN3 = (TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8")
DEEPSEEK = "{% for tool in message['tool_calls'] %}<｜tool▁calls▁begin｜>{% endfor %}"
LLAMA3 = "{% if tools is not none %}<|start_header_id|>system<|end_header_id|>{{ tools | tojson }}{% endif %}"
MISTRAL = "{% if tools %}[AVAILABLE_TOOLS] {{ tools }}[/AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]"
QWEN3_CODER = "{% if tools %}<tools></tools><tool_call><function=name>{% endif %}"
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def vocabulary(*tokens: str) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


@pytest.mark.parametrize(
    ("template", "tokens", "wanted"),
    [
        (QWEN3, (), "hermes"),
        (LLAMA3, (), "llama3"),
        (MISTRAL, (), "mistral"),
        ("{{ tools }}", ("<|python_tag|>",), "llama3"),
        ("{{ tools }}", ("[TOOL_CALLS]",), "mistral"),
        ("{{ tools }}", ("<tool_call>",), "hermes"),
        ("{{ tools }}", (), None),
        (QWEN3_CODER, ("<tool_call>",), None),  # its calls are XML: better refused than read wrongly
        (PLAIN, ("<tool_call>",), None),
        (DEEPSEEK, (), None),
        ("", (), None),
    ],
)
def test_auto(template: str, tokens: tuple[str, ...], wanted: str | None) -> None:
    assert tool_parser("auto", template, vocabulary(*tokens).get) == wanted


def test_the_option_wins() -> None:
    assert tool_parser("none", QWEN3, {}.get) is None
    for name in TOOL_PARSERS:
        assert tool_parser(name, PLAIN, {}.get) == name
    assert reasoning_tags("none", QWEN3, {}.get) is None
    assert reasoning_tags("seed", QWEN3, {}.get) == REASONING_TAGS["seed"]


def test_the_options_choices_are_the_parsers_that_there_are() -> None:
    assert set(SERVE_OPTIONS["tool_parser"].choices) == {"auto", "none", *TOOL_PARSERS}
    assert set(SERVE_OPTIONS["reasoning_parser"].choices) == {"auto", "none", *REASONING_TAGS}
    assert options_schema()["properties"]["tool_parser"]["enum"][:2] == ["auto", "none"]
    with pytest.raises(ConfigError, match="tool_parser is 'xml'; it can be auto, none, hermes"):
        read_options({"tool_parser": "xml"})


def test_reasoning_by_template_or_by_both_tokens() -> None:
    think = ReasoningTags("<think>", "</think>")
    assert reasoning_tags("auto", QWEN3, {}.get) == think
    assert reasoning_tags("auto", PLAIN, vocabulary("<think>", "</think>").get) == think
    assert reasoning_tags("auto", PLAIN, vocabulary("<think>").get) is None
    assert reasoning_tags("auto", PLAIN, vocabulary("[THINK]", "[/THINK]").get) == REASONING_TAGS["mistral"]


def test_all_tags_that_may_be_hidden_are_named() -> None:
    assert tags_of(None, None) == ()
    assert tags_of("mistral", None) == ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
    assert tags_of("hermes", ReasoningTags("<a>", "</a>")) == ("<tool_call>", "</tool_call>", "<a>", "</a>")


def test_each_answer_has_a_parser_of_its_own() -> None:
    assert isinstance(TOOL_PARSERS["mistral"](frozenset()), MistralCalls)
    for make in TOOL_PARSERS.values():
        assert make(frozenset()) is not make(frozenset())
