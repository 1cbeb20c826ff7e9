"""A call that must come, drawn by the real core from a model whose tokens are all as likely."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from engines.native.serve.parsers.registry import TOOL_TAGS
from engines.native.serve.tools import Tools, forced
from tests.engines.instances import NAME, Running
from tests.engines.serve import chat_models

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", 'Ol"so', "Ås"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 99},
        "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
    },
    "required": ["city", "days", "deep"],
    "additionalProperties": False,
}
PARAMETERS["properties"]["deep"]["additionalProperties"] = False
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
TEMPLATES = {"hermes": "{# <tool_call> #}", "mistral": "{# [TOOL_CALLS] #}", "llama3": "{# <|python_tag|> #}"}


@pytest.fixture(scope="module", params=["hermes"])
def chooser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    template = chat_models.LAST_MESSAGE + TEMPLATES[request.param]
    folder = chat_models.write(tmp_path_factory.mktemp("chooser"), template, special=TOOL_TAGS[request.param])
    running = Running(folder, max_model_len=1024, max_num_seqs=8, kv_cache_bytes=4 * 2**20)
    try:
        yield running
    finally:
        running.stop()


def ask(chooser: Running, **options: Any) -> list[dict[str, Any]]:
    """Choices of six answers."""
    messages = [{"role": "user", "content": "x"}]
    body = {"model": NAME, "messages": messages, "tools": TOOLS, "n": 6, "seed": 1, "max_tokens": 900, **options}
    response = chooser.post("/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


def check(choice: dict[str, Any]) -> list[str]:
    """Names of the calls, whose arguments are as their schemas say."""
    assert choice["message"]["content"] is None
    names = []
    for call in choice["message"]["tool_calls"]:
        names.append(call["function"]["name"])
        arguments = json.loads(call["function"]["arguments"])
        if names[-1] == "now":
            assert arguments == {}
        else:
            jsonschema.validate(arguments, PARAMETERS)
    return names


@pytest.mark.slow
def test_required_calls_one_or_more_of_the_tools(chooser: Running) -> None:
    choices = ask(chooser, tool_choice="required")
    found = [check(choice) for choice in choices if choice["finish_reason"] == "tool_calls"]
    assert len(found) >= 3  # others may be cut off by max_tokens: all tokens are as likely
    assert {name for names in found for name in names} == {"weather", "now"}


@pytest.mark.slow
def test_required_without_parallel_calls_is_one(chooser: Running) -> None:
    for choice in ask(chooser, tool_choice="required", parallel_tool_calls=False):
        assert len(check(choice)) == 1
        assert choice["finish_reason"] == "tool_calls"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weather", "now"])
def test_a_named_function_is_called_once(chooser: Running, name: str) -> None:
    for choice in ask(chooser, tool_choice={"type": "function", "function": {"name": name}}):
        assert check(choice) == [name]


@pytest.mark.slow
def test_what_cannot_be_forced_is_named(chooser: Running) -> None:
    wrong = [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}]
    body = {"model": NAME, "messages": [{"role": "user", "content": "x"}], "tools": wrong}
    for fields, param in (
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": TOOLS, "tool_choice": "required", "stop_token_ids": [50]}, "stop_token_ids"),
    ):
        response = chooser.post("/v1/chat/completions", {**body, **fields})
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("parser", ["hermes", "llama3", "mistral"])
def test_every_form_has_its_grammar(parser: str, tmp_path: Any) -> None:
    template = chat_models.LAST_MESSAGE + TEMPLATES[parser]
    model = chat_models.served(chat_models.write(tmp_path, template, special=TOOL_TAGS[parser]))
    assert forced(None, model) is None
    assert forced(Tools(TOOLS, "auto", "", True), model) is None
    asked = forced(Tools(TOOLS, "named", "weather", True), model)
    assert asked is not None
    assert asked[0] == "tool_choice"
    source = asked[1]()
    assert "weather" in source
    assert "now" not in source
