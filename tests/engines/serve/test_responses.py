"""OpenAI's /v1/responses over HTTP, and how its input reads in the chat's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.native.serve.errors import ApiError
from engines.native.serve.response_input import chat_messages
from tests.engines.instances import NAME, Running

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": None}]


def ask(running: Running, **body: Any) -> dict[str, Any]:
    response = running.post("/v1/responses", {"model": NAME, **body})
    assert response.status_code == 200, response.text
    whole: dict[str, Any] = response.json()
    return whole


def events(running: Running, **body: Any) -> list[dict[str, Any]]:
    found = []
    asked = {"model": NAME, "stream": True, **body}
    with running.client.stream("POST", running.url + "/v1/responses", json=asked) as response:
        assert response.status_code == 200, response.read()
        for frame in response.read().decode().strip().split("\n\n"):
            name, data = frame.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def without_ids(value: Any) -> Any:
    """Two answers differ in their ids and times alone."""
    if isinstance(value, dict):
        ids = ("id", "call_id", "item_id", "created_at")
        return {name: without_ids(each) for name, each in value.items() if name not in ids}
    return [without_ids(each) for each in value] if isinstance(value, list) else value


def test_a_response(talker: Running) -> None:
    whole = ask(talker, input="Grüße", instructions="Sag: ", metadata={"a": "b"}, temperature=0.5)
    assert (whole["object"], whole["status"], whole["error"]) == ("response", "completed", None)
    (message,) = whole["output"]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"] == [{"type": "output_text", "text": "Sag: Grüße", "annotations": [], "logprobs": []}]
    assert whole["metadata"] == {"a": "b"}
    assert whole["temperature"] == 0.5
    assert whole["store"] is False
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_a_response_that_was_cut_is_incomplete(talker: Running) -> None:
    whole = ask(talker, input="one two three", max_output_tokens=2)
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert whole["output"][0]["status"] == "incomplete"
    last = events(talker, input="one two three", max_output_tokens=2)[-1]
    assert last["type"] == "response.incomplete"
    assert without_ids(last["response"]) == without_ids(whole)


def test_reasoning_text_and_calls_are_items(talker: Running) -> None:
    whole = ask(talker, input=f"<think>hm</think>I ask.{CALL}{CALL}", tools=TOOLS)
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert whole["output"][0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    call = whole["output"][2]
    assert (call["name"], json.loads(call["arguments"])) == ("weather", {"city": "Köln"})
    assert call["call_id"] != whole["output"][3]["call_id"]
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_events_come_in_order_and_add_up_to_the_response(talker: Running) -> None:
    asked: dict[str, Any] = {"input": f"<think>hm</think>I ask.{CALL}", "tools": TOOLS}
    found = events(talker, **asked)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    kinds = [event["type"].removeprefix("response.") for event in found]
    squeezed = [kind for place, kind in enumerate(kinds) if kind != kinds[place - 1] or not kind.endswith("delta")]
    assert squeezed == [
        "created",
        "in_progress",
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]
    for place, item in enumerate(done):
        deltas = [e["delta"] for e in found if e["type"].endswith(".delta") and e["output_index"] == place]
        assert "".join(deltas) == (item.get("arguments") or item["content"][0]["text"])
        assert {e["item_id"] for e in found if e.get("output_index") == place and "item_id" in e} == {item["id"]}
    assert without_ids(found[-1]["response"]) | {"usage": None} == without_ids(ask(talker, **asked)) | {"usage": None}


def test_logprobs_where_asked_for(talker: Running) -> None:
    asked: dict[str, Any] = {"input": "a b c", "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    part = ask(talker, **asked)["output"][0]["content"][0]
    assert [entry["token"] for entry in part["logprobs"]][:3] == ["a", " b", " c"]
    assert len(part["logprobs"][0]["top_logprobs"]) == 1
    found = events(talker, **asked)
    (done,) = [event for event in found if event["type"] == "response.output_text.done"]
    streamed = [e for event in found if event["type"].endswith("text.delta") for e in event["logprobs"]]
    assert streamed == done["logprobs"]
    assert streamed == part["logprobs"][: len(streamed)]


def test_items_in_the_chats_words() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    items = [
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I ask."}]},
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "wet"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "dry"}]},
        {"role": "user", "content": "so?"},
    ]
    calls = [
        {"id": each, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for each in ("c1", "c2")
    ]
    assert chat_messages(items) == [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I ask.", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "wet"},
        {"role": "tool", "tool_call_id": "c2", "content": "dry"},
        {"role": "user", "content": "so?"},
    ]
    assert chat_messages([call])[0]["role"] == "assistant"


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("", "input"),
        ([], "input"),
        (5, "input"),
        ([5], "input[0]"),
        ([{"role": "king", "content": "x"}], "input[0].role"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]"),
        ([{"role": "user", "content": "x"}, {"type": "item_reference", "id": "x"}], "input[1]"),
        ([{"type": "function_call", "name": "x"}], "input[0]"),
        ([{"type": "function_call_output", "call_id": "x", "output": 5}], "input[0].output"),
    ],
)
def test_input_that_cannot_be_read_is_refused_by_name(value: Any, param: str) -> None:
    with pytest.raises(ApiError) as raised:
        chat_messages(value)
    assert (raised.value.status, raised.value.param) == (400, param)


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({"store": True}, "store", "nothing is stored"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the conversation"),
        ({"conversation": "c"}, "conversation", "not supported"),
        ({"background": True}, "background", "not supported"),
        ({"truncation": "auto"}, "truncation", "never cut"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "built-in tools"),
        ({"include": ["file_search_call.results"]}, "include", "logprobs only"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "json_schema"),
        ({"text": 5}, "text", "an object"),
        ({"max_output_tokens": 0}, "max_output_tokens", "must be 1 or more"),
        ({"reasoning": "high"}, "reasoning", "must be an object"),
        ({"metadata": "x"}, "metadata", "must be an object"),
        ({"max_output_tokens": 10**6}, "max_output_tokens", "context length is 2048"),
        ({"input": "x " * 3000}, "input", "context length is 2048"),
        ({"temperature": 9}, "temperature", "from 0 to 2"),
        ({"instructions": 5}, "instructions", "must be a string"),
        ({"n": 2}, "n", "an option of /v1/chat/completions"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(talker: Running, body: dict[str, Any], param: str, part: str) -> None:
    response = talker.post("/v1/responses", {"model": NAME, "input": "x", **body})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert part in error["message"]
