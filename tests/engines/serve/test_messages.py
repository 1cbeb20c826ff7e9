"""Anthropic's /v1/messages over HTTP, and how its requests read in the chat's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from engines.native.loader.model_files import open_model
from engines.native.serve.errors import ApiError
from engines.native.serve.messages import chat_body
from engines.native.serve.model import ServedModel, load
from tests.engines.instances import NAME, Running
from tests.tiny_models import write_safetensors

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
TOOLS = [{"name": "weather", "description": "of a city", "input_schema": {"type": "object"}}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    folder: Path = write_safetensors(tmp_path_factory.mktemp("m") / "m")
    return load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def ask(running: Running, *messages: Any, **body: Any) -> dict[str, Any]:
    response = running.post("/v1/messages", {"model": NAME, "max_tokens": 200, "messages": list(messages), **body})
    assert response.status_code == 200, response.text
    whole: dict[str, Any] = response.json()
    return whole


def events(running: Running, *messages: Any, **body: Any) -> list[dict[str, Any]]:
    asked = {"model": NAME, "max_tokens": 200, "messages": list(messages), "stream": True, **body}
    found = []
    with running.client.stream("POST", running.url + "/v1/messages", json=asked) as response:
        assert response.status_code == 200, response.read()
        for frame in response.read().decode().strip().split("\n\n"):
            name, data = frame.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def test_a_message(talker: Running) -> None:
    whole = ask(talker, user("Grüße"))
    assert whole["content"] == [{"type": "text", "text": "Grüße"}]
    assert (whole["type"], whole["role"], whole["model"]) == ("message", "assistant", NAME)
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)
    assert whole["usage"]["output_tokens"] == whole["usage"]["input_tokens"] + 1  # and the end


def test_system_comes_first_as_text_or_blocks(talker: Running) -> None:
    assert ask(talker, user("b"), system="a ")["content"][0]["text"] == "a b"
    blocks = [
        {"type": "text", "text": "one "},
        {"type": "text", "text": "two ", "cache_control": {"type": "ephemeral"}},
    ]
    assert ask(talker, user("b"), system=blocks)["content"][0]["text"] == "one two b"


def test_stop_sequences_are_named(talker: Running) -> None:
    whole = ask(talker, user("one two three"), stop_sequences=["four", " three"])
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", " three")
    assert whole["content"][0]["text"] == "one two"
    (last,) = [
        e for e in events(talker, user("one two three"), stop_sequences=[" two"]) if e["type"] == "message_delta"
    ]
    assert last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": " two"}


def test_max_tokens_and_the_context_are_different_ends(talker: Running) -> None:
    assert ask(talker, user("one two three"), max_tokens=2)["stop_reason"] == "max_tokens"
    whole = ask(talker, user("x " * 1100), max_tokens=2000)
    assert whole["stop_reason"] == "model_context_window_exceeded"


def test_cached_tokens_are_no_input_tokens(talker: Running) -> None:
    text = "a prompt that is long enough to fill some blocks of the cache, and is asked for twice " * 2
    first, second = ask(talker, user(text))["usage"], ask(talker, user(text))["usage"]
    assert first["cache_read_input_tokens"] == 0
    assert second["cache_read_input_tokens"] >= 16
    assert second["input_tokens"] + second["cache_read_input_tokens"] == first["input_tokens"]


def test_the_beginning_of_an_answer_is_continued(talker: Running) -> None:
    whole = ask(talker, user("Say: "), {"role": "assistant", "content": "So it is"})
    assert whole["content"][0]["text"] == "Say: So it is"  # nothing came between, nothing after


def test_thinking_text_and_calls_are_blocks(talker: Running) -> None:
    said = f"<think>which city?</think>I look it up.{CALL}"
    whole = ask(talker, user(said), tools=TOOLS)
    thinking, text, call = whole["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "which city?")
    assert text == {"type": "text", "text": "I look it up."}
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "weather", {"city": "Köln"})
    assert whole["stop_reason"] == "tool_use"


def test_events_open_and_close_one_block_at_a_time(talker: Running) -> None:
    said = f"<think>which city?</think>I look it up.{CALL}{CALL}"
    found = events(talker, user(said), tools=TOOLS)
    assert [event["type"] for event in found[:2]] == ["message_start", "ping"]
    assert [event["type"] for event in found[-2:]] == ["message_delta", "message_stop"]
    assert found[0]["message"]["content"] == []
    assert found[0]["message"]["usage"]["output_tokens"] == 0
    blocks: list[Any] = []
    is_open = False
    for event in found[2:-2]:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(blocks)
                blocks.append((event["content_block"]["type"], ""))
                is_open = True
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(blocks) - 1
                delta = dict(event["delta"])
                kind = delta.pop("type")
                (text,) = delta.values()
                assert kind == {"thinking": "thinking_delta", "text": "text_delta"}.get(
                    blocks[-1][0], "input_json_delta"
                )
                blocks[-1] = (blocks[-1][0], blocks[-1][1] + text)
            case "content_block_stop":
                assert is_open
                assert event["index"] == len(blocks) - 1
                is_open = False
            case other:
                raise AssertionError(other)
    assert not is_open
    call = ("tool_use", '{"city": "Köln"}')
    assert blocks == [("thinking", "which city?"), ("text", "I look it up."), call, call]
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    assert found[-2]["usage"]["output_tokens"] > 0


def test_a_call_that_was_cut_off_keeps_its_text(talker: Running) -> None:
    whole = ask(talker, user(CALL), tools=TOOLS, max_tokens=16)
    assert whole["stop_reason"] == "max_tokens"
    (call,) = whole["content"]
    assert set(call["input"]) == {"partial_json"}


def test_turns_with_tools_in_the_chats_words(model: ServedModel) -> None:
    messages = [
        user("hi"),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "I ask."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Köln"}},
                {"type": "tool_use", "id": "t2", "name": "time", "input": {}},
            ],
        },
        user(
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "wet"}]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no clock", "is_error": True},
            {"type": "text", "text": "And?"},
        ),
    ]
    body = {"model": "m", "system": "be brief", "messages": messages, "tools": TOOLS, "top_k": 3, "min_p": 0.1}
    body["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
    chat = chat_body(model, body)
    first, second = ({"id": i, "type": "function", "function": f} for i, f in (
        ("t1", {"name": "weather", "arguments": '{"city":"Köln"}'}),
        ("t2", {"name": "time", "arguments": "{}"}),
    ))  # fmt: skip
    assert chat["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I ask.", "reasoning_content": "hm", "tool_calls": [first, second]},
        {"role": "tool", "tool_call_id": "t1", "content": "wet"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no clock"},
        {"role": "user", "content": "And?"},
    ]
    assert chat["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert chat["tool_choice"] == "required"
    assert chat["parallel_tool_calls"] is False
    assert (chat["top_k"], chat["min_p"]) == (3, 0.1)
    named = chat_body(model, {**body, "tool_choice": {"type": "tool", "name": "weather"}})["tool_choice"]
    assert named == {"type": "function", "function": {"name": "weather"}}
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    formatted = chat_body(model, {**body, "output_config": {"format": wanted}})
    assert formatted["response_format"]["json_schema"]["schema"] == {"type": "object"}
    quiet = chat_body(model, {**body, "thinking": {"type": "disabled"}})
    assert quiet["chat_template_kwargs"] == {"enable_thinking": False}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [user(3)]}, "messages[0].content"),
        ({"messages": [user(IMAGE, IMAGE)]}, "messages[0].content[0]"),
        ({"messages": [user([{"type": "tool_use", "id": "a", "name": "b"}])]}, "messages[0].content[0]"),
        ({"messages": [user([{"type": "tool_result"}])]}, "messages[0].content[0]"),
        ({"system": 5}, "system"),
        ({"system": [IMAGE]}, "system[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "x"}]}, "tools[0]"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),  # it has no thinking
        ({"thinking": True}, "thinking"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"output_config": {"effort": "low"}}, "output_config"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(model: ServedModel, body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        chat_body(model, {"model": "m", "messages": [user("x")], **body})
    assert (raised.value.status, raised.value.param) == (400, param)


@pytest.mark.parametrize(
    ("body", "status", "kind", "part"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens is required"),
        ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens is 0"),
        ({"model": "gpt"}, 404, "not_found_error", "available: smollm2"),
        ({"temperature": 3}, 400, "invalid_request_error", "temperature is 3"),
        ({"stop_sequences": [""]}, 400, "invalid_request_error", "stop_sequences"),
        ({"messages": [user("x " * 3000)]}, 400, "invalid_request_error", "context length is 2048"),
        ({"messages": [user("x" * 17_000_000)]}, 413, "request_too_large", "larger than"),
    ],
)
def test_errors_have_anthropics_shape(talker: Running, body: Any, status: int, kind: str, part: str) -> None:
    asked = {"model": NAME, "max_tokens": 5, "messages": [user("x")], **body}
    for stream in (False, True):
        response = talker.post("/v1/messages", {**asked, "stream": stream})
        assert response.status_code == status, response.text
        told = response.json()
        assert told["type"] == "error"
        assert told["error"]["type"] == kind
        assert part in told["error"]["message"]


def test_the_token_comes_as_a_bearer_or_an_api_key(talker: Running) -> None:
    body = {"model": NAME, "max_tokens": 5, "messages": [user("x")]}
    with httpx.Client() as stranger:
        for headers, status in (
            ({"x-api-key": talker.token}, 200),
            ({"Authorization": f"Bearer {talker.token}"}, 200),
            ({"x-api-key": "wrong"}, 401),
            ({"x-api-key": talker.token, "Authorization": "Bearer wrong"}, 401),
            ({}, 401),
        ):
            response = stranger.post(talker.url + "/v1/messages", json=body, headers=headers)
            assert response.status_code == status
            if status == 401:
                assert response.json()["error"]["type"] == "authentication_error"


def test_count_tokens_is_what_a_message_pays(talker: Running) -> None:
    body: dict[str, Any] = {"model": NAME, "messages": [user("count me")], "system": "well "}
    counted = talker.post("/v1/messages/count_tokens", body).json()
    usage = talker.post("/v1/messages", {**body, "max_tokens": 1}).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    assert talker.post("/v1/messages/count_tokens", {**body, "messages": 1}).json()["type"] == "error"
