"""Every malformed request is refused with OpenAI's error shape and the field at fault, and nothing falls over."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from tests.engines.instances import NAME, Running

PROMPT = {"prompt": "hello"}
CHAT = {"messages": [{"role": "user", "content": "hello"}]}
VOCAB = 49152

COMPLETIONS: list[tuple[dict[str, Any], str, str]] = [
    # body (besides the model), param, part of the message
    ({}, "prompt", "prompt must be a string"),
    ({"prompt": ""}, "prompt", "empty"),
    ({"prompt": []}, "prompt", "empty"),
    ({"prompt": [[]]}, "prompt", "empty"),
    ({"prompt": ["ok", ""]}, "prompt", "empty"),
    ({"prompt": None}, "prompt", "must be a string"),
    ({"prompt": 5}, "prompt", "must be a string"),
    ({"prompt": [1, "a"]}, "prompt", "array of integers"),
    ({"prompt": [True]}, "prompt", "array of integers"),
    ({"prompt": [1.5]}, "prompt", "array of integers"),
    ({"prompt": [VOCAB]}, "prompt", f"0 to {VOCAB - 1}"),
    ({"prompt": [-1]}, "prompt", "token id -1"),
    ({"prompt": [5] * 2048}, "prompt", "2048 tokens and the model's context length is 2048"),
    ({"prompt": [5] * 9000}, "prompt", "9000 tokens"),
    ({"prompt": "word " * 3000}, "prompt", "context length is 2048"),
    ({"prompt": ["x"] * 300}, "prompt", "at most 256"),
    ({"prompt": [5] * 1000, "prompt_logprobs": 20, "n": 48}, "prompt_logprobs", "at most 1000000"),
    ({**PROMPT, "temperature": -0.1}, "temperature", "from 0 to 2"),
    ({**PROMPT, "temperature": 1e9}, "temperature", "from 0 to 2"),
    ({**PROMPT, "temperature": "hot"}, "temperature", "must be a number, not a string"),
    ({**PROMPT, "temperature": True}, "temperature", "not a boolean"),
    ({**PROMPT, "temperature": []}, "temperature", "not an array"),
    ({**PROMPT, "top_p": 0}, "top_p", "above 0"),
    ({**PROMPT, "top_p": 1.01}, "top_p", "at most 1"),
    ({**PROMPT, "top_k": -2}, "top_k", "must be -1 or more"),
    ({**PROMPT, "top_k": 1.5}, "top_k", "must be an integer"),
    ({**PROMPT, "min_p": -1}, "min_p", "from 0 to 1"),
    ({**PROMPT, "repetition_penalty": 0}, "repetition_penalty", "above 0"),
    ({**PROMPT, "presence_penalty": 3}, "presence_penalty", "from -2 to 2"),
    ({**PROMPT, "frequency_penalty": -2.5}, "frequency_penalty", "from -2 to 2"),
    ({**PROMPT, "max_tokens": 0}, "max_tokens", "must be 1 or more"),
    ({**PROMPT, "max_tokens": -5}, "max_tokens", "must be 1 or more"),
    ({**PROMPT, "max_tokens": True}, "max_tokens", "not a boolean"),
    ({**PROMPT, "max_tokens": 10**12}, "max_tokens", "context length is 2048"),
    ({**PROMPT, "min_tokens": 17}, "min_tokens", "from 0 to 16"),
    ({**PROMPT, "seed": 2**63}, "seed", "from -9223372036854775808"),
    ({**PROMPT, "seed": 1.5}, "seed", "must be an integer"),
    ({**PROMPT, "stop": 5}, "stop", "string or an array of strings"),
    ({**PROMPT, "stop": [""]}, "stop", "1 to 256 characters"),
    ({**PROMPT, "stop": ["a"] * 17}, "stop", "at most 16"),
    ({**PROMPT, "stop": ["a", 1]}, "stop", "array of strings"),
    ({**PROMPT, "stop_token_ids": [VOCAB + 1], "min_tokens": 2}, "stop_token_ids", f"token id {VOCAB + 1}"),
    ({**PROMPT, "stop_token_ids": "2"}, "stop_token_ids", "array of integers"),
    ({**PROMPT, "stop_token_ids": list(range(100))}, "stop_token_ids", "at most 64"),
    ({**PROMPT, "logit_bias": {str(VOCAB): 1}}, "logit_bias", "ids 0 to"),
    ({**PROMPT, "logit_bias": {"0000000000009999999": 1}}, "logit_bias", "keys are token ids"),
    ({**PROMPT, "logit_bias": {"0" * 5000 + "1": 1}}, "logit_bias", "keys are token ids"),
    ({**PROMPT, "logit_bias": {"-1": 1}}, "logit_bias", "keys are token ids"),
    ({**PROMPT, "logit_bias": {"x": 1}}, "logit_bias", "keys are token ids"),
    ({**PROMPT, "logit_bias": {"5": 101}}, "logit_bias", "from -100 to 100"),
    ({**PROMPT, "logit_bias": {"5": "1"}}, "logit_bias", "must be a number"),
    ({**PROMPT, "logit_bias": [1]}, "logit_bias", "must be an object"),
    ({**PROMPT, "logprobs": 21}, "logprobs", "from 0 to 20"),
    ({**PROMPT, "logprobs": True}, "logprobs", "not a boolean"),
    ({**PROMPT, "stream": "yes"}, "stream", "must be a boolean"),
    ({**PROMPT, "stream_options": {"include_usage": True}}, "stream_options", "only allowed with stream"),
    ({**PROMPT, "stream": True, "stream_options": 1}, "stream_options", "must be an object"),
    ({**PROMPT, "n": 0}, "n", "from 1 to 128"),
    ({**PROMPT, "n": 129}, "n", "from 1 to 128"),
    ({**PROMPT, "n": True}, "n", "not a boolean"),
    ({"prompt": ["x"] * 200, "n": 6}, "n", "1200 answers are asked for in one request; this engine takes at most 1024"),
    ({**PROMPT, "n": 3, "best_of": 2}, "best_of", "at least n, which is 3"),
    ({**PROMPT, "best_of": 129}, "best_of", "from 1 to 128"),
    ({**PROMPT, "best_of": "3"}, "best_of", "must be an integer"),
    ({**PROMPT, "best_of": 2, "stream": True}, "best_of", "can't be streamed"),
    ({**PROMPT, "suffix": "end"}, "suffix", "not supported"),
    ({**PROMPT, "prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "can't be streamed"),
    ({**PROMPT, "prompt_logprobs": -1}, "prompt_logprobs", "from 0 to 20"),
    ({**PROMPT, "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "1 or more, or -1"),
    ({**PROMPT, "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "-1 or more"),
    ({**PROMPT, "return_token_ids": 1}, "return_token_ids", "must be a boolean"),
    (
        {**PROMPT, "stream": True, "stream_options": {"continuous_usage_stats": True, "include_usage": 1}},
        "include_usage",
        "must be a boolean",
    ),
    ({**PROMPT, "priority": 5000}, "priority", "from -1000 to 1000"),
    ({**PROMPT, "cache_salt": "x" * 300}, "cache_salt", "at most 256"),
]

CHATS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "messages", "must be an array"),
    ({"messages": []}, "messages", "empty"),
    ({"messages": ["hi"]}, "messages[0]", "must be an object"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "is 'king'; it must be one of"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "is missing; it must be one of"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "must be a string"),
    ({"messages": [*CHAT["messages"], {"role": "user", "content": 3}]}, "messages[1].content", "must be a string"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "text only"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]", "function.name"),
    ({"messages": [{"role": "user", "content": "a b " * 3000}]}, "messages", "context length is 2048"),
    ({**CHAT, "tools": [{"type": "function"}]}, "tools[0].function", "must be an object"),
    ({**CHAT, "tool_choice": "required"}, "tool_choice", "has no tools"),
    ({**CHAT, "modalities": ["audio"]}, "modalities", "not supported"),
    ({**CHAT, "top_logprobs": 2}, "top_logprobs", "only allowed with logprobs"),
    ({**CHAT, "logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
    ({**CHAT, "logprobs": 1}, "logprobs", "must be a boolean"),
    ({**CHAT, "max_completion_tokens": 0}, "max_completion_tokens", "must be 1 or more"),
    ({**CHAT, "chat_template_kwargs": 1}, "chat_template_kwargs", "must be an object"),
    ({**CHAT, "n": 200}, "n", "from 1 to 128"),
    ({**CHAT, "best_of": 2}, "best_of", "an option of /v1/completions"),
    ({**CHAT, "echo": True}, "echo", "not supported"),
    ({**CHAT, "documents": [{"text": "x"}]}, "documents", "not supported"),
    ({**CHAT, "chat_template": "{{ messages }}"}, "chat_template", "not supported"),
    ({**CHAT, "regex": "a+"}, "regex", "not supported"),
    ({**CHAT, "verbosity": "low"}, "verbosity", "allowed: 'medium'"),
    ({**CHAT, "reasoning_effort": 3}, "reasoning_effort", "must be a string"),
    ({**CHAT, "add_special_tokens": "no"}, "add_special_tokens", "must be a boolean"),
    ({**CHAT, "add_generation_prompt": True, "continue_final_message": True}, "add_generation_prompt", "exclude"),
]


def refused(response: httpx.Response, status: int, param: str | None, part: str) -> None:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert part in error["message"]
    assert error["type"] == ("authentication_error" if status == 401 else "invalid_request_error")


@pytest.mark.parametrize(("body", "param", "part"), COMPLETIONS, ids=range(len(COMPLETIONS)))
def test_c2_c5_completion(instance: Running, body: dict[str, Any], param: str, part: str) -> None:
    refused(instance.post("/v1/completions", {"model": NAME, **body}), 400, param, part)


@pytest.mark.parametrize(("body", "param", "part"), CHATS, ids=range(len(CHATS)))
def test_c2_c5_chat(instance: Running, body: dict[str, Any], param: str, part: str) -> None:
    refused(instance.post("/v1/chat/completions", {"model": NAME, **body}), 400, param, part)


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"{", "no valid JSON"),
        (b"", "no valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"model": "smollm2", "prompt": "\xff\xfe"}', "no valid JSON"),
        (b'{"model": "smollm2", "prompt": "\\ud800"}', "no valid JSON"),
        (b'{"model": "smollm2", "prompt": "x", "temperature": NaN}', "no valid JSON"),
        (b'{"model": "smollm2", "prompt": "x", "temperature": Infinity}', "no valid JSON"),
        (b"[" * 90_000, "no valid JSON"),
        (b'{"model": "smollm2", "response_format": {"type": ' + b"[" * 900 + b"]" * 900 + b"}}", "nested too deeply"),
    ],
)
def test_bad_json(instance: Running, raw: bytes, part: str) -> None:
    refused(instance.client.post(instance.url + "/v1/completions", content=raw), 400, None, part)


def test_number_beyond_float_is_refused(instance: Running) -> None:
    raw = b'{"model": "smollm2", "prompt": "x", "temperature": 1e999}'
    response = instance.client.post(instance.url + "/v1/completions", content=raw)
    assert response.status_code == 400
    assert "error" in response.json()


def test_surrogate_pair_is_a_character(instance: Running) -> None:
    raw = b'{"model": "smollm2", "prompt": "\\ud83d\\udd25", "max_tokens": 20}'
    response = instance.client.post(instance.url + "/v1/completions", content=raw)
    assert response.json()["choices"][0]["text"] == "🔥"


def test_body_over_the_limit(instance: Running) -> None:
    refused(instance.post("/v1/completions", {"model": NAME, "prompt": "x" * 100_001}), 413, None, "100000 bytes")


def test_unknown_model_names_the_ones_there_are(instance: Running) -> None:
    refused(instance.post("/v1/completions", {"model": "gpt-5", "prompt": "x"}), 404, "model", "available: smollm2")
    refused(instance.client.get(instance.url + "/v1/models/gpt-5"), 404, "model", "available: smollm2")
    refused(instance.post("/v1/completions", {"prompt": "x"}), 400, "model", "must be a string")


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer wrong"}, {"Authorization": ""}, {"Authorization": "é"}])
def test_wrong_token(instance: Running, headers: dict[str, str]) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("/v1/models", "/metrics", "/nothing"):
        with httpx.Client() as stranger:
            refused(stranger.get(instance.url + path, headers=encoded), 401, None, "token")


def test_health_is_open_and_other_paths_say_what_is_wrong(instance: Running) -> None:
    assert httpx.get(instance.url + "/health").json() == {"status": "ready"}
    refused(instance.client.get(instance.url + "/v1/nothing"), 404, None, "Not Found")
    refused(instance.client.get(instance.url + "/v1/completions"), 405, None, "Method Not Allowed")


def test_tokenize_and_detokenize(instance: Running) -> None:
    counted = instance.post("/tokenize", {"prompt": "Hello wörld"}).json()
    assert counted["count"] == len(counted["tokens"]) > 1
    assert counted["max_model_len"] == 2048
    assert instance.post("/detokenize", {"tokens": counted["tokens"]}).json() == {"prompt": "Hello wörld"}
    chat = instance.post("/tokenize", {"messages": CHAT["messages"]}).json()
    usage = instance.post("/v1/chat/completions", {"model": NAME, **CHAT, "max_tokens": 1}).json()["usage"]
    assert chat["count"] == usage["prompt_tokens"]
    refused(instance.post("/tokenize", {"prompt": 5}), 400, "prompt", "a string")
    refused(instance.post("/detokenize", {"tokens": [VOCAB]}), 400, "tokens", "ids 0 to")
    refused(instance.post("/detokenize", {}), 400, "tokens", "array of integers")


@pytest.mark.parametrize(
    "extra",
    [
        {"n": 1, "best_of": None, "suffix": None, "user": "u", "metadata": {}, "store": True, "unknown_field": [1]},
        {"temperature": None, "stop": None, "logit_bias": None, "stream": False, "seed": None},
        {"temperature": 0, "top_p": 1, "top_k": -1, "seed": -(2**63), "stop": [], "logit_bias": {}},
        {"max_tokens": 2048, "temperature": 2.0, "top_k": 10**6, "repetition_penalty": 10.0},
    ],
)
def test_neutral_and_unknown_fields_are_ignored(instance: Running, extra: dict[str, Any]) -> None:
    assert instance.complete(**PROMPT, **extra)["choices"][0]["text"] == "hello"
