"""A live server driven as its users drive it: by the OpenAI and the Anthropic Python SDK, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.engines import shared_instances
from tests.engines.instances import NAME, Running

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
THOUGHT = f"<think>which city?</think>I look it up.{CALL}"
PARAMETERS: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": PARAMETERS}}


@pytest.fixture(scope="module")
def server() -> Running:
    return shared_instances.talker()


@pytest.fixture
def ai(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key=server.token, max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


# OpenAI: models, completions


def test_models(ai: openai.OpenAI) -> None:
    (model,) = ai.models.list().data
    told: Any = ai.models.retrieve(NAME)
    assert model.id == told.id == NAME
    assert told.context_length == 2048
    assert told.capabilities["tools"] is True
    assert told.capabilities["reasoning"] is True
    with pytest.raises(openai.NotFoundError):
        ai.models.retrieve("another")


def test_completions_with_every_option(ai: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": NAME,
        "prompt": ["one two three four", "five six seven"],
        "echo": True,
        "frequency_penalty": 0.5,
        "logit_bias": {"100": -50},
        "logprobs": 2,
        "max_tokens": 3,
        "n": 2,
        "presence_penalty": 0.5,
        "seed": 5,
        "stop": ["never"],
        "temperature": 0.7,
        "top_p": 0.9,
        "user": "someone",
    }
    beyond = {
        "top_k": 5,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "min_tokens": 2,
        "stop_token_ids": [7],
        "ignore_eos": False,
        "priority": 1,
        "cache_salt": "tenant",
        "return_token_ids": True,
        "truncate_prompt_tokens": 3,
        "add_special_tokens": True,
    }
    whole = ai.completions.create(**asked, extra_body={**beyond, "prompt_logprobs": 1})
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert whole.choices[0].text.startswith(" two three four")  # the last three tokens
    assert whole.choices[0].finish_reason == "length"
    extra: Any = whole.choices[0]
    assert len(extra.token_ids) == 3
    assert len(extra.prompt_token_ids) == len(extra.prompt_logprobs) == 3
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (6, 12)
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = ai.completions.create(**asked, stream=True, stream_options=options, extra_body=beyond)  # type: ignore[call-overload]
    texts = ["", "", "", ""]
    last: Any = None
    for chunk in stream:
        assert chunk.usage is not None
        last = chunk
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert last.choices == []
    assert last.usage.completion_tokens == 12


def test_completions_best_of_and_suffix(ai: openai.OpenAI) -> None:
    whole = ai.completions.create(model=NAME, prompt="pick", best_of=5, n=2, max_tokens=5)
    assert [choice.text for choice in whole.choices] == ["pick", "pick"]
    assert ai.completions.create(model=NAME, prompt="x", logprobs=1, max_tokens=1).choices[0].logprobs is not None
    with pytest.raises(openai.BadRequestError) as refused:
        ai.completions.create(model=NAME, prompt="a", suffix="b")
    assert refused.value.param == "suffix"


# OpenAI: chat


def test_chat_with_every_option(ai: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": NAME,
        "messages": [
            {"role": "developer", "content": "say "},
            {"role": "user", "content": [{"type": "text", "text": "one two "}, {"type": "text", "text": "three"}]},
        ],
        "frequency_penalty": 0.1,
        "logit_bias": {"100": -50},
        "logprobs": True,
        "max_completion_tokens": 50,
        "metadata": {"a": "b"},
        "n": 2,
        "presence_penalty": 0.1,
        "response_format": {"type": "text"},
        "seed": 5,
        "service_tier": "auto",
        "stop": [" three"],
        "store": False,
        "temperature": 0.7,
        "top_logprobs": 2,
        "top_p": 0.9,
        "user": "someone",
    }
    whole = ai.chat.completions.create(**asked)
    assert [choice.message.content for choice in whole.choices] == ["say one two"] * 2
    first: Any = whole.choices[0]
    assert (first.finish_reason, first.stop_reason) == ("stop", " three")
    assert first.logprobs.content[0].token == "say"
    assert len(first.logprobs.content[0].top_logprobs) == 2
    texts = ["", ""]
    for chunk in ai.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        usage = chunk.usage
    assert texts == ["say one two"] * 2
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_chat_reasons_and_calls_tools(ai: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": user(THOUGHT), "tools": [TOOL], "tool_choice": "auto"}
    choice = ai.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    message: Any = choice.message
    assert message.reasoning_content == "which city?"
    assert message.content == "I look it up."
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Köln"}
    with ai.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.content == "I look it up."
    calls: Any = final.message.tool_calls
    assert json.loads(calls[0].function.arguments) == {"city": "Köln"}
    assert calls[0].function.name == "weather"
    history = [
        *user("hi"),
        {"role": "assistant", "content": "ask ", "tool_calls": [calls[0].model_dump(include={"id", "type"}) | {
            "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": calls[0].id, "content": "wet"},
    ]  # fmt: skip
    again: Any = ai.chat.completions.create(model=NAME, messages=history, tools=[TOOL])
    assert again.choices[0].message.content == "hiask wet"


@pytest.mark.parametrize(
    ("body", "param"),
    [({"temperature": 9}, "temperature"), ({"n": 0}, "n"), ({"max_tokens": 10**6}, "max_tokens")],
)
def test_chat_refusals_are_the_sdks_own_errors(ai: openai.OpenAI, body: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(model=NAME, messages=user("x"), **body)
    assert refused.value.param == param
    stranger = openai.OpenAI(base_url=ai.base_url, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model=NAME, messages=user("x"))


# OpenAI: responses


def test_responses(ai: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": NAME,
        "input": user("one two three"),
        "instructions": "say ",
        "max_output_tokens": 50,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "store": False,
        "temperature": 0.7,
        "text": {"format": {"type": "text"}},
        "top_p": 0.9,
        "truncation": "disabled",
        "user": "someone",
    }
    whole = ai.responses.create(**asked)
    assert whole.output_text == "say one two three"
    assert whole.status == "completed"
    assert whole.usage is not None
    text, kinds = "", []
    for event in ai.responses.create(**asked, stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == whole.output_text
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.create(model=NAME, input="x", previous_response_id="resp-1")
    assert refused.value.param == "previous_response_id"


def test_responses_call_functions_and_take_their_results(ai: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
    with ai.responses.stream(model=NAME, input=user(THOUGHT), tools=[tool]) as stream:
        response = stream.get_final_response()
    reasoning, message, call = response.output
    assert reasoning.type == "reasoning"
    assert message.type == "message"
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Köln"}
    assert response.output_text == "I look it up."
    history: Any = [*user("hi"), *response.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "wet"})
    again = ai.responses.create(model=NAME, input=history, tools=[tool])
    assert again.output_text == "hiI look it up.wet"


# Anthropic


def test_messages_with_every_option(claude: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {
        "model": NAME,
        "max_tokens": 50,
        "messages": user("one two three"),
        "metadata": {"user_id": "u"},
        "stop_sequences": [" three"],
        "system": [{"type": "text", "text": "say "}],
        "extra_body": {"temperature": 0.7, "top_k": 5, "top_p": 0.9},  # this SDK no longer names them
    }
    whole = claude.messages.create(**asked)
    assert whole.content[0].type == "text"
    assert whole.content[0].text == "say one two"
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", " three")
    with claude.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "say one two"
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", " three")
    assert final.usage.output_tokens == whole.usage.output_tokens
    kinds = [event.type for event in claude.messages.create(**asked, stream=True)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_messages_think_and_use_tools(claude: anthropic.Anthropic) -> None:
    tool: Any = {"name": "weather", "description": "of a city", "input_schema": PARAMETERS}
    asked: dict[str, Any] = {
        "model": NAME,
        "max_tokens": 200,
        "messages": user(THOUGHT),
        "tools": [tool],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    with claude.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    whole = claude.messages.create(**asked)
    for message in (whole, streamed):
        thinking, text, use = message.content
        assert thinking.type == "thinking"
        assert thinking.thinking == "which city?"
        assert text.type == "text"
        assert text.text == "I look it up."
        assert use.type == "tool_use"
        assert use.input == {"city": "Köln"}
        assert message.stop_reason == "tool_use"
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "wet"}
    history: Any = [*user("hi"), {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    again = claude.messages.create(model=NAME, max_tokens=50, messages=history, tools=[tool])
    assert again.content[0].type == "text"
    assert again.content[0].text == "hiI look it up.wet"


def test_messages_count_and_refuse(claude: anthropic.Anthropic, server: Running) -> None:
    count = claude.messages.count_tokens(model=NAME, messages=user("one two three")).input_tokens
    assert count == len(server.post("/tokenize", {"prompt": "one two three"}).json()["tokens"])
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        claude.messages.create(model=NAME, max_tokens=5, messages=user("x"), extra_body={"temperature": 9})
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="another", max_tokens=5, messages=user("x"))
    with anthropic.Anthropic(base_url=server.url, auth_token=server.token, max_retries=0) as bearer:
        assert bearer.messages.create(model=NAME, max_tokens=5, messages=user("x")).content[0].type == "text"
    with (
        anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(model=NAME, max_tokens=5, messages=user("x"))


# Structured output: a real core, whose tiny model would write anything


@pytest.fixture(scope="module")
def tiny() -> Running:
    return shared_instances.tiny()


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"rain": {"type": "boolean"}, "wind": {"enum": ["none", "some", "storm"]}},
    "required": ["rain", "wind"],
    "additionalProperties": False,
}


@pytest.mark.slow
def test_structured_output_in_each_api(tiny: Running) -> None:
    ai = openai.OpenAI(base_url=f"{tiny.url}/v1", api_key=tiny.token, max_retries=0)
    claude = anthropic.Anthropic(base_url=tiny.url, api_key=tiny.token, max_retries=0)
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
    flat: Any = {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA, "strict": True}}
    said: list[str | None] = []
    whole = ai.chat.completions.create(model=NAME, messages=user("go"), response_format=wanted, n=4, temperature=1.5)
    said += [choice.message.content for choice in whole.choices]
    with ai.chat.completions.stream(model=NAME, messages=user("go"), response_format=wanted) as stream:
        said.append(stream.get_final_completion().choices[0].message.content)
    said.append(ai.completions.create(model=NAME, prompt="go", max_tokens=110, extra_body={
        "structured_outputs": {"json": SCHEMA}}).choices[0].text)  # fmt: skip
    said.append(ai.responses.create(model=NAME, input="go", text=flat).output_text)
    config: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    message = claude.messages.create(model=NAME, max_tokens=110, messages=user("go"), output_config=config)
    said += [block.text for block in message.content if block.type == "text"]
    assert len(said) == 8
    for text in said:
        assert text is not None
        told = json.loads(text)
        assert set(told) == {"rain", "wind"}
        assert told["wind"] in ("none", "some", "storm")
    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.create(model=NAME, input="go", text={"format": {**flat["format"], "schema": {"type": "colour"}}})
    assert refused.value.param == "text.format"


@pytest.mark.slow
def test_a_call_can_be_forced_in_each_api(tiny: Running) -> None:
    ai = openai.OpenAI(base_url=f"{tiny.url}/v1", api_key=tiny.token, max_retries=0)
    claude = anthropic.Anthropic(base_url=tiny.url, api_key=tiny.token, max_retries=0)
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"city": {"enum": ["Rom", "Ulm"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    nested: Any = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
    named: Any = {"type": "function", "function": {"name": "weather"}}
    greedy = {"temperature": 0}  # blanks between the tokens of JSON, drawn at random, could fill the context
    calls: list[tuple[str, Any]] = []
    for choice in ("required", named):
        chat: Any = ai.chat.completions.create(
            model=NAME,
            messages=user("go"),
            tools=nested,
            tool_choice=choice,
            parallel_tool_calls=False,
            temperature=0,
        )
        function = chat.choices[0].message.tool_calls[0].function
        calls.append((function.name, json.loads(function.arguments)))
    flat: Any = [{"type": "function", "name": "weather", "parameters": schema, "strict": True}]
    with ai.responses.stream(
        model=NAME, input="go", tools=flat, tool_choice="required", parallel_tool_calls=False, temperature=0
    ) as stream:
        item: Any = stream.get_final_response().output[-1]
    calls.append((item.name, json.loads(item.arguments)))
    tools: Any = [{"name": "weather", "input_schema": schema}]
    forced: Any = {"type": "any", "disable_parallel_tool_use": True}
    message = claude.messages.create(
        model=NAME, max_tokens=110, messages=user("go"), tools=tools, tool_choice=forced, extra_body=greedy
    )
    use: Any = message.content[-1]
    assert message.stop_reason == "tool_use"
    calls.append((use.name, use.input))
    assert len(calls) == 4
    for name, arguments in calls:
        assert name == "weather"
        assert arguments in ({"city": "Rom"}, {"city": "Ulm"})
