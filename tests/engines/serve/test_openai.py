"""What vLLM's and OpenAI's options of both endpoints do, over HTTP, with an engine that answers with its prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.native.serve import validate
from engines.native.serve.errors import ApiError
from tests.engines.instances import NAME, Running
from tests.engines.scripted_core import EOS

PATHS = {
    "/v1/completions": {"prompt": "one two three"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}
both = pytest.mark.parametrize("path", PATHS)


def answered(instance: Running, path: str, **body: Any) -> dict[str, Any]:
    response = instance.post(path, {"model": NAME, **PATHS[path], **body})
    assert response.status_code == 200, response.text
    whole: dict[str, Any] = response.json()
    return whole


def streamed(instance: Running, path: str, **body: Any) -> list[dict[str, Any]]:
    events = instance.events(path, {**PATHS[path], **body})
    assert events.pop() == "[DONE]"
    return events


def text_of(choice: dict[str, Any]) -> str:
    """Of a choice, whole or a chunk's."""
    said = choice.get("message") or choice.get("delta") or choice
    return said.get("content", choice.get("text")) or ""


@both
def test_n_answers_are_numbered_and_their_prompt_counts_once(instance: Running, path: str) -> None:
    one = answered(instance, path, max_tokens=30)
    whole = answered(instance, path, max_tokens=30, n=5)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3, 4]
    assert {text_of(choice) for choice in whole["choices"]} == {text_of(one["choices"][0])}
    assert whole["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] == 5 * one["usage"]["completion_tokens"]


@both
def test_n_answers_in_a_stream_are_those_of_the_whole(instance: Running, path: str) -> None:
    whole = answered(instance, path, max_tokens=30, n=3)
    chunks = streamed(instance, path, max_tokens=30, n=3, stream_options={"include_usage": True})
    gathered, endings = ["", "", ""], []
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        gathered[choice["index"]] += text_of(choice)
        endings += [choice["index"]] if choice["finish_reason"] else []
    assert gathered == [text_of(choice) for choice in whole["choices"]]
    assert sorted(endings) == [0, 1, 2]
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    if "chat" in path:  # each begins with its role
        firsts = [next(c for c in chunks if c["choices"][0]["index"] == index) for index in range(3)]
        assert [first["choices"][0]["delta"]["role"] for first in firsts] == ["assistant"] * 3


def test_answers_to_several_prompts_stand_prompt_by_prompt(instance: Running) -> None:
    whole = instance.complete(prompt=["first", "second"], n=2, max_tokens=10)
    assert [choice["text"] for choice in whole["choices"]] == ["first", "first", "second", "second"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]


def test_the_prompt_is_computed_once_for_all_its_answers(instance: Running) -> None:
    prompt = list(range(7000, 7100))
    before, computed = instance.metric("prefix_hit_tokens_total"), instance.metric("prompt_tokens_total")
    usage = instance.complete(prompt=prompt, n=8, max_tokens=2)["usage"]
    assert usage["prompt_tokens"] == 100
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0  # nothing was there before this request
    assert instance.metric("prompt_tokens_total") - computed == 8 * 100
    assert instance.metric("prefix_hit_tokens_total") - before == 7 * 96  # all full blocks, for all but the first


def test_all_answers_end_when_the_client_leaves(instance: Running) -> None:
    aborted = 'requests_finished_total{reason="abort"}'
    before = instance.metric(aborted)
    body = {"model": NAME, "prompt": list(range(500)), "max_tokens": 1500, "ignore_eos": True, "stream": True, "n": 20}
    with instance.client.stream("POST", instance.url + "/v1/completions", json=body) as response:
        lines = response.iter_lines()  # kept: an iterator that is dropped closes the response
        next(lines)
        instance.eventually(lambda: instance.metric("requests_running") == 8)  # rows; the others wait
    instance.eventually(lambda: instance.metric(aborted) == before + 20, 1.0)
    instance.eventually(lambda: instance.metric("requests_running") + instance.metric("requests_waiting") == 0, 1.0)


def test_best_of_draws_more_than_it_shows(instance: Running) -> None:
    whole = instance.complete(prompt="abc", best_of=4, n=2, max_tokens=10)
    one = instance.complete(prompt="abc", max_tokens=10)["usage"]["completion_tokens"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert whole["choices"][0]["logprobs"] is None  # they were compared by them, but nobody asked to see them
    assert whole["usage"]["completion_tokens"] == 4 * one
    assert len(instance.complete(prompt="abc", best_of=3, max_tokens=10)["choices"]) == 1


@both
def test_token_ids_of_prompt_and_answer(instance: Running, path: str) -> None:
    whole = answered(instance, path, max_tokens=40, return_token_ids=True, n=2)
    holder = whole if "chat" in path else whole["choices"][0]
    prompt, ids = holder["prompt_token_ids"], whole["choices"][0]["token_ids"]
    assert prompt == instance.post("/tokenize", PATHS[path]).json()["tokens"]
    cut = prompt.index(EOS) + 1 if EOS in prompt else len(prompt)
    assert ids == [*prompt[:cut], EOS][: len(ids)]
    assert len(ids) == whole["usage"]["completion_tokens"] // 2
    chunks = streamed(instance, path, max_tokens=40, return_token_ids=True, n=2)
    for index in range(2):
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert [token for choice in own for token in choice.get("token_ids", [])] == ids
    first = chunks[0] if "chat" in path else chunks[0]["choices"][0]
    assert first["prompt_token_ids"] == prompt
    assert "token_ids" not in answered(instance, path, max_tokens=3)["choices"][0]


def test_ids_without_text_are_streamed_as_they_come(instance: Running) -> None:
    prompt = instance.post("/tokenize", {"prompt": "🔥"}).json()["tokens"]
    chunks = streamed(instance, "/v1/completions", prompt=prompt, max_tokens=len(prompt), return_token_ids=True)
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks][1:] == [[token] for token in prompt]
    assert "".join(text_of(chunk["choices"][0]) for chunk in chunks) == "🔥"


@both
def test_continuous_usage_grows_to_the_final_one(instance: Running, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = streamed(instance, path, max_tokens=6, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert 1 <= counts[0] < counts[-1] == answered(instance, path, max_tokens=6)["usage"]["completion_tokens"]
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1
    alone = streamed(instance, path, max_tokens=6, stream_options={"continuous_usage_stats": True})
    assert not any("usage" in chunk for chunk in alone)  # as in vLLM it only adds to include_usage


@both
def test_stop_reason_names_the_stop_string_or_token(instance: Running, path: str) -> None:
    tokens = instance.post("/tokenize", PATHS[path]).json()["tokens"]
    stop = instance.post("/detokenize", {"tokens": tokens[2:4]}).json()["prompt"]
    by_string = answered(instance, path, max_tokens=40, stop=["nowhere to be seen", stop])["choices"][0]
    by_token = answered(instance, path, max_tokens=40, stop_token_ids=[tokens[2]])["choices"][0]
    by_end = answered(instance, path, max_tokens=40)["choices"][0]
    by_length = answered(instance, path, max_tokens=1)["choices"][0]
    ends = [(choice["finish_reason"], choice["stop_reason"]) for choice in (by_string, by_token, by_end, by_length)]
    assert ends == [("stop", stop), ("stop", tokens[2]), ("stop", None), ("length", None)]
    assert streamed(instance, path, max_tokens=40, stop=[stop])[-1]["choices"][0]["stop_reason"] == stop


def test_echo_opens_each_answer_in_a_stream(instance: Running) -> None:
    body = {"prompt": ["red", "green"], "n": 2, "max_tokens": 10, "echo": True, "logprobs": 1}
    whole = instance.complete(**body)["choices"]
    gathered: dict[int, dict[str, Any]] = {}
    for chunk in streamed(instance, "/v1/completions", **body):
        (choice,) = chunk["choices"]
        own = gathered.setdefault(choice["index"], {"text": "", "token_logprobs": [], "text_offset": []})
        own["text"] += choice["text"]
        for name in ("token_logprobs", "text_offset"):
            own[name] += choice["logprobs"][name] if choice["logprobs"] else []
    for choice in whole:
        own = gathered[choice["index"]]
        assert own["text"] == choice["text"]
        assert own["token_logprobs"] == choice["logprobs"]["token_logprobs"]
        assert own["text_offset"] == choice["logprobs"]["text_offset"]


@both
def test_truncated_prompts_keep_their_end(instance: Running, path: str) -> None:
    tokens = instance.post("/tokenize", PATHS[path]).json()["tokens"]
    body: dict[str, Any] = {"max_tokens": 5, "return_token_ids": True, "truncate_prompt_tokens": 2}
    whole = answered(instance, path, **body)
    assert (whole if "chat" in path else whole["choices"][0])["prompt_token_ids"] == tokens[-2:]
    assert whole["usage"]["prompt_tokens"] == 2
    body["truncate_prompt_tokens"] = 10**6  # nothing to cut
    assert answered(instance, path, **body)["usage"]["prompt_tokens"] == len(tokens)


def test_truncation_to_what_fits_leaves_room_for_the_answer(instance: Running) -> None:
    long = [*range(100, 600)] * 5
    usage = instance.complete(prompt=long, max_tokens=48, truncate_prompt_tokens=-1)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2000, 48)
    refused = instance.post("/v1/completions", {"model": NAME, "prompt": long, "max_tokens": 48})
    assert refused.status_code == 400  # never cut without being asked
    assert refused.json()["error"]["code"] == "context_length_exceeded"


def test_chat_goes_on_with_its_last_message(instance: Running) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The answer is  "}]
    tokens = instance.post("/tokenize", {"messages": messages, "continue_final_message": True}).json()["tokens"]
    text = instance.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert text.endswith("assistant\nThe answer is  ")
    plain = instance.post("/tokenize", {"messages": messages, "add_generation_prompt": False}).json()["tokens"]
    assert instance.post("/detokenize", {"tokens": plain}).json()["prompt"].endswith("The answer is  \n")
    body = {"model": NAME, "messages": messages, "continue_final_message": True, "max_tokens": 3}
    assert instance.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"] == len(tokens)


def test_models_tell_context_and_what_answers_for_them(instance: Running) -> None:
    (told,) = instance.client.get(instance.url + "/v1/models").json()["data"]
    assert told["max_model_len"] == told["context_length"] == 2048
    able = told["capabilities"]
    assert able["chat"] is True
    assert able["tools"] is False  # SmolLM2's template shows none
    assert able["embeddings"] is False
    assert "/v1/embeddings" not in able["endpoints"]
    assert {"json_schema", "regex", "choice", "grammar"} <= set(able["structured_output"])
    for path in able["endpoints"]:
        response = instance.client.post(instance.url + path, content=json.dumps({"model": NAME}))
        assert response.status_code == 400, path  # it is there, and wants more than a name


def test_a_token_that_the_model_lacks_is_refused_by_field() -> None:
    """Some tokenizers hold more tokens than their model has embeddings for."""
    with pytest.raises(ApiError, match="does not know") as refused:
        validate.check_prompt([1, 100], "messages", 50, vocab_size=100)
    assert (refused.value.status, refused.value.param) == (400, "messages")
