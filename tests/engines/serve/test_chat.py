"""Tool calls and reasoning as clients get them, over HTTP, from an engine that answers with its last message. Names
carry the case of cases/engine.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.engines.instances import NAME, Running
from tests.engines.serve import chat_models

SCRIPTED = "tests.engines.scripted_instance"

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo {"}}\n</tool_call>'
TEMPLATE = chat_models.LAST_MESSAGE + "{# <tool_call> </think> #}"
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")  # special, so that text without them would be senseless


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = chat_models.write(tmp_path_factory.mktemp("talker"), TEMPLATE, special=TAGS)
    running = Running(folder, module=SCRIPTED, script={"step_s": 0.0005})
    try:
        yield running
    finally:
        running.stop()


def body(answer: str, **options: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": answer}], "tools": [WEATHER], "max_tokens": 500, **options}


def whole(talker: Running, answer: str, **options: Any) -> dict[str, Any]:
    response = talker.post("/v1/chat/completions", {"model": NAME, **body(answer, **options)})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def streamed(talker: Running, answer: str, **options: Any) -> list[dict[str, Any]]:
    """The choices of all chunks but the last, which is [DONE]."""
    events = talker.events("/v1/chat/completions", body(answer, **options))
    assert events[-1] == "[DONE]"
    return [event["choices"][0] for event in events[:-1] if event["choices"]]


def gathered(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """A stream put together again, as a client does it."""
    message: dict[str, Any] = {"content": None, "reasoning_content": None, "calls": []}
    for choice in choices:
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            if delta.get(name):
                message[name] = (message[name] or "") + delta[name]
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(message["calls"])
                message["calls"].append([call["function"]["name"], ""])
            message["calls"][call["index"]][1] += call["function"]["arguments"]
    return message


def told(message: dict[str, Any]) -> dict[str, Any]:
    """A whole answer in the same form."""
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", ())]
    reasoning = message.get("reasoning_content")
    assert message.get("reasoning") == reasoning  # vLLM's newer name
    return {"content": message["content"] or None, "reasoning_content": reasoning, "calls": calls}


ANSWERS = [
    "Just text.",
    CALL,
    f"Let me see.\n{CALL}\n{CALL} There.",
    f"<think>\nThe user wants weather.\n</think>\n\n{CALL}",
    "<think>only thought",
    f"<think>{CALL}</think>no call: it was a thought",
    "<tool_call>malformed</tool_call>",
    '<tool_call>{"name": "get_weather", "arguments": {"x": "🔥 é \\u00e9"}}</tool_call>',
    "a <think> in the middle </think> is text",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_stream_and_whole_answer_say_the_same(talker: Running, answer: str) -> None:
    response = whole(talker, answer)["choices"][0]
    choices = streamed(talker, answer)
    assert gathered(choices) == told(response["message"])
    assert choices[-1]["finish_reason"] == response["finish_reason"]
    called = bool(told(response["message"])["calls"])
    assert response["finish_reason"] == ("tool_calls" if called else "stop")
    assert all(choice["finish_reason"] is None for choice in choices[:-1])


def test_deltas_of_a_call_are_openais_g2(talker: Running) -> None:
    first, *rest = [choice["delta"] for choice in streamed(talker, f"Well: {CALL}")]
    assert first == {"role": "assistant", "content": ""}
    spoken = [delta for delta in rest if "content" in delta]
    begin, *fragments, end = rest[len(spoken) :]
    assert "".join(delta["content"] for delta in spoken) == "Well:"
    (call,) = begin["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"index": 0, "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    assert len(fragments) > 1
    for delta in fragments:
        (part,) = delta["tool_calls"]
        keys = (list(delta), list(part), list(part["function"]))
        assert keys == (["tool_calls"], ["index", "function"], ["arguments"])
    assert end == {}


def test_reasoning_content_and_calls_are_never_in_one_delta(talker: Running) -> None:
    for choice in streamed(talker, f"<think>thought</think>text{CALL}"):
        assert len(choice["delta"].keys() - {"role", "reasoning"}) <= 1


def test_openai_sdk_reads_calls_and_sends_their_results(talker: Running) -> None:
    client = OpenAI(base_url=f"{talker.url}/v1", api_key=talker.token, max_retries=0)
    asked: Any = {"model": NAME, "messages": [{"role": "user", "content": CALL}], "tools": [WEATHER]}
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    message = client.chat.completions.create(**asked).choices[0].message
    for found in (final.message, message):
        assert found.tool_calls is not None
        (call,) = found.tool_calls
        assert call.type == "function"
        assert json.loads(call.function.arguments) == {"city": "Oslo {"}
    assert final.finish_reason == "tool_calls"
    asked["messages"] += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id if message.tool_calls else "", "content": "-5 °C"},
    ]
    assert client.chat.completions.create(**asked).choices[0].message.content == "-5 °C"


def test_a_call_that_length_cuts_off_says_length(talker: Running) -> None:
    cut = CALL.index("Oslo") + len("Oslo") - len("<tool_call>") + 1  # a token is a byte, or a tag
    response = whole(talker, CALL, max_tokens=cut)["choices"][0]
    assert response["finish_reason"] == "length"
    assert told(response["message"])["calls"] == [["get_weather", '{"city": "Oslo']]
    early = whole(talker, CALL, max_tokens=12)["choices"][0]
    assert told(early["message"])["content"] == CALL[: len("<tool_call>") + 11]
    assert told(early["message"])["calls"] == []


def test_only_the_first_call_where_parallel_ones_are_forbidden(talker: Running) -> None:
    for choices in (
        told(whole(talker, f"{CALL}{CALL}", parallel_tool_calls=False)["choices"][0]["message"]),
        gathered(streamed(talker, f"{CALL}{CALL}", parallel_tool_calls=False)),
    ):
        assert len(choices["calls"]) == 1


def test_each_of_n_answers_is_read_by_itself(talker: Running) -> None:
    events = talker.events("/v1/chat/completions", body(f"<think>hm</think>{CALL}{CALL}", n=3))
    for index in range(3):
        chunks = [e["choices"][0] for e in events[:-1] if e["choices"] and e["choices"][0]["index"] == index]
        found = gathered(chunks)
        assert (found["reasoning_content"], len(found["calls"])) == ("hm", 2)
        assert chunks[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("options", [{"tools": None}, {"tools": []}, {"tool_choice": "none"}])
def test_without_tools_calls_are_text(talker: Running, options: dict[str, Any]) -> None:
    response = whole(talker, f"so {CALL}", **options)["choices"][0]
    assert response["message"]["content"] == f"so {CALL}"
    assert response["finish_reason"] == "stop"


def test_reasoning_can_be_left_out_and_is_counted(talker: Running) -> None:
    answer = "<think>12345</think>so"
    response = whole(talker, answer, include_reasoning=False)
    assert response["choices"][0]["message"] == {"role": "assistant", "content": "so", "refusal": None}
    assert response["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    assert response["usage"]["completion_tokens"] == 5 + 2 + 2 + 1
    choices = streamed(talker, answer, include_reasoning=False)
    assert gathered(choices) == {"content": "so", "reasoning_content": None, "calls": []}


def test_b5_stop_strings_end_the_answer_alone(talker: Running) -> None:
    answer = "<think>an END here</think>and an END there"
    response = whole(talker, answer, stop=["END"])["choices"][0]
    assert told(response["message"])["reasoning_content"] == "an END here"
    assert response["message"]["content"] == "and an "
    assert response["stop_reason"] == "END"


def test_logprobs_and_ids_of_every_token_come_once(talker: Running) -> None:
    answer = f"<think>hm</think>so{CALL}"
    asked = {"logprobs": True, "return_token_ids": True}
    response = whole(talker, answer, **asked)["choices"][0]
    choices = streamed(talker, answer, **asked)
    ids = [token for choice in choices for token in choice.get("token_ids", ())]
    scored = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
    assert ids == response["token_ids"]
    assert len(scored) == len(response["logprobs"]["content"]) == len(ids)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": "x"}, "tools"),
    ({"tools": [1]}, "tools[0]"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, "tools[0].function.parameters"),
    ({"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]}, "tools[0].function.description"),
    ({"tool_choice": "always"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": None, "tool_choice": "required"}, "tool_choice"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"include_reasoning": 1}, "include_reasoning"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0]"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
]


@pytest.mark.parametrize(("wrong", "param"), REFUSED)
def test_what_is_wrong_is_named(talker: Running, wrong: dict[str, Any], param: str) -> None:
    response = talker.post("/v1/chat/completions", {"model": NAME, **body("x"), **wrong})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_a_model_without_tools_says_so(instance: Running) -> None:
    response = instance.post("/v1/chat/completions", {"model": NAME, **body("x")})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"
    assert "shows no tools" in response.json()["error"]["message"]
