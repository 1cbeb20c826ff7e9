"""Messages and tools as the models' own templates show them: as transformers shows them."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engines.native.serve.conversation import Chat, read_chat, read_messages
from engines.native.serve.errors import ApiError
from engines.native.serve.model import ServedModel
from tests.engines.serve import chat_models

TEMPLATES = Path(__file__).parents[2] / "data" / "chat_templates"
TOOLS = [{"type": "function", "function": {"name": "f", "description": "né", "parameters": {"type": "object"}}}]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Twice f"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I must",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": [1, "é"]}'}},
            {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}]},
    {"role": "tool", "tool_call_id": "b", "content": "two"},
]


def model_of(name: str, folder: Path, **options: str) -> ServedModel:
    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return chat_models.served(chat_models.write(folder, template), **options)


def chat(model: ServedModel, **body: Any) -> Chat:
    return asyncio.run(read_chat(model, {"messages": copy.deepcopy(MESSAGES), **body}))


def prompt(read: Chat) -> str:
    return str(read.model.tokenizer.decode(read.prompt, skip_special_tokens=False))


def reference(name: str, messages: list[dict[str, Any]], **names: Any) -> str:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    rendered, _ = render_jinja_template(
        conversations=[messages], chat_template=source, add_generation_prompt=True, **names
    )
    return str(rendered[0])


def test_qwen3_with_tools_and_their_results(tmp_path: Path) -> None:
    wanted = copy.deepcopy(MESSAGES)
    wanted[2]["content"] = ""  # what transformers' users give it
    for call in wanted[2]["tool_calls"]:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    wanted[3]["content"] = "one"
    read = chat(model_of("qwen3", tmp_path), tools=TOOLS)
    assert prompt(read) == reference("qwen3", wanted, tools=TOOLS)
    assert '{"name": "f", "arguments": {"x": [1, "é"]}}' in prompt(read)
    assert "<think>\nI must\n</think>" in prompt(read)
    assert read.tools is not None
    assert read.tools.names == {"f"}


DEEPSEEK = """{%- for message in messages %}
{%- if message['role'] == 'assistant' and message['content'] is none %}
{%- for call in message['tool_calls'] %}
{{- '<call>' + call['function']['name'] + '\\n```json\\n' + call['function']['arguments'] + '\\n```' }}
{%- endfor %}
{%- else %}
{{- '<' + message['role'] + '>' + message['content'] }}
{%- endif %}
{%- endfor %}"""


def test_a_template_like_deepseeks_takes_arguments_as_text_and_knows_calls_by_missing_content(tmp_path: Path) -> None:
    read = chat(chat_models.served(chat_models.write(tmp_path, DEEPSEEK)))
    assert prompt(read) == (
        "<system>Be brief.<user>Twice f"
        '<call>f\n```json\n{"x": [1, "é"]}\n```<call>f\n```json\n{}\n```'
        "<tool>one<tool>two"
    )


def test_tools_are_shown_only_where_they_may_be_called(tmp_path: Path) -> None:
    model = model_of("qwen3", tmp_path)
    assert "<tools>" in prompt(chat(model, tools=TOOLS))
    for body in ({"tools": TOOLS, "tool_choice": "none"}, {"tools": []}, {"chat_template_kwargs": {"tools": TOOLS}}):
        read = chat(model, **body)
        assert "<tools>" not in prompt(read)
        assert read.tools is None


def test_thinking_begun_by_the_template_or_switched_off(tmp_path: Path) -> None:
    model = model_of("qwen3", tmp_path / "a")
    assert not chat(model).thinking
    assert not chat(model, chat_template_kwargs={"enable_thinking": False}).thinking
    opens = chat_models.write(tmp_path / "b", "{{ messages[-1].content }}<think>\n")
    assert chat(chat_models.served(opens)).thinking
    assert not chat(chat_models.served(opens, reasoning_parser="none")).thinking
    asked = {"messages": [{"role": "assistant", "content": "<think>so"}], "continue_final_message": True}
    assert (
        chat(chat_models.served(chat_models.write(tmp_path / "c", chat_models.LAST_MESSAGE)), **asked).thinking is False
    )
    assert chat(chat_models.served(tmp_path / "c", reasoning_parser="think"), **asked).thinking is True


def test_special_tags_are_read_and_only_there(tmp_path: Path) -> None:
    tags = ("<tool_call>", "</tool_call>")
    source = chat_models.LAST_MESSAGE + "{# <tool_call> #}"
    model = chat_models.served(chat_models.write(tmp_path, source, special=tags))
    ids = model.tokenizer.encode("<tool_call>x</tool_call><|im_end|>", add_special_tokens=False).ids
    assert len(ids) == 4
    assert chat(model, tools=TOOLS).detokenizer is model.tagged
    assert chat(model).detokenizer is None
    assert model.tagged.text(ids) == "<tool_call>x</tool_call>"
    assert model.detokenizer.text(ids) == "x"


@pytest.mark.parametrize("arguments", ["", None, {}])
def test_absent_arguments_are_an_empty_object(arguments: Any) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    (message,) = read_messages([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize("arguments", ['{"a": ', "no JSON", "[" * 100_000, '{"a": "\\ud83d"}', "[" * 990 + "]" * 990])
def test_a_call_that_the_model_failed_at_can_be_sent_back(tmp_path: Path, arguments: str) -> None:
    """Else a conversation could not go on after it."""
    call = {"function": {"name": "f", "arguments": arguments}}
    read = chat(
        model_of("qwen3", tmp_path),
        messages=[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}],
        tools=TOOLS,
    )
    assert arguments in prompt(read)


def test_unknown_tool_form_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="engine option tool_parser") as refused:
        chat(model_of("qwen3", tmp_path, tool_parser="none"), tools=TOOLS)
    assert (refused.value.status, refused.value.param) == (400, "tools")
