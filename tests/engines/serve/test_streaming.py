"""What clients get, over HTTP, from an engine that answers with its prompt. Names carry the case of cases/engine.md."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from typing import Any

import pytest
from openai import OpenAI

from tests.engines.instances import NAME, Running
from tests.engines.scripted_core import EOS


def texts(events: list[Any]) -> list[str]:
    return [event["choices"][0]["text"] for event in events if event != "[DONE]" and event["choices"]]


def finish(events: list[Any]) -> str:
    return next(e["choices"][0]["finish_reason"] for e in reversed(events) if e != "[DONE]" and e["choices"])


@pytest.mark.parametrize("text", ["Hello 🔥 ď", "日本語 naïve 👩‍👩‍👧"])
def test_a1_stream_equals_whole_answer_and_has_no_broken_characters(instance: Running, text: str) -> None:
    body = {"prompt": text, "max_tokens": 100}
    whole = instance.complete(**body)["choices"][0]
    events = instance.events("/v1/completions", body)
    assert "".join(texts(events)) == whole["text"] == text
    assert not any("\ufffd" in piece for piece in texts(events))
    assert finish(events) == whole["finish_reason"] == "stop"
    assert events[-1] == "[DONE]"


def test_a3_broken_bytes_do_not_break_the_stream(instance: Running) -> None:
    tokens = instance.post("/tokenize", {"prompt": "a🔥 b"}).json()["tokens"]
    fire = [t for t in tokens if instance.post("/detokenize", {"tokens": [t]}).json()["prompt"] == "\ufffd"]
    prompt = [*fire[:1], *tokens, *fire[:2]]
    body = {"prompt": prompt, "max_tokens": len(prompt)}
    whole = instance.complete(**body)["choices"][0]["text"]
    pieces = texts(instance.events("/v1/completions", body))
    assert "".join(pieces) == whole == instance.post("/detokenize", {"tokens": prompt}).json()["prompt"]
    assert whole.startswith("\ufffda🔥 b")


@pytest.mark.parametrize("stop", ["quick brown", ["zzz", "ick bro"], ["own"]])
def test_b2_stop_string_inside_tokens_is_cut_exactly_in_both_forms(instance: Running, stop: Any) -> None:
    text = "The quick brown fox jumps"
    body = {"prompt": text, "max_tokens": 50, "stop": stop}
    stops = [stop] if isinstance(stop, str) else stop
    want = text[: min(text.find(one) for one in stops if one in text)]
    whole = instance.complete(**body)["choices"][0]
    events = instance.events("/v1/completions", body)
    assert whole["text"] == "".join(texts(events)) == want
    assert whole["finish_reason"] == finish(events) == "stop"


def test_b3_held_back_tail_is_sent_when_length_ends_the_answer(instance: Running) -> None:
    tokens = instance.post("/tokenize", {"prompt": "count one two three four"}).json()["tokens"]
    body = {"prompt": tokens, "max_tokens": 3, "stop": ["two three four"]}
    events = instance.events("/v1/completions", body)
    assert "".join(texts(events)) == "count one two"
    assert finish(events) == "length"


def chat_of(instance: Running, tokens: int) -> dict[str, Any]:
    """Messages whose prompt has exactly so many tokens."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": ""}]}
    frame = instance.post("/tokenize", body).json()["count"]
    body["messages"][0]["content"] = " sea" * (tokens - frame)
    assert instance.post("/tokenize", body).json()["count"] == tokens
    return body


def both(instance: Running, body: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """finish_reason and usage, which are the same streamed and whole."""
    whole = instance.post("/v1/chat/completions", {"model": NAME, **body}).json()
    events = instance.events("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    assert events[-1] == "[DONE]"
    assert finish(events) == whole["choices"][0]["finish_reason"]
    *chunks, last = events[:-1]
    assert (
        "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        == (whole["choices"][0]["message"]["content"])
    )
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [last["usage"][name] for name in counts] == [whole["usage"][name] for name in counts]
    return whole["choices"][0]["finish_reason"], whole["usage"]


@pytest.mark.parametrize("limit", [{}, {"max_tokens": None}, {"max_completion_tokens": None}, {"max_tokens": 2048}])
def test_c5_without_a_limit_a_chat_has_the_whole_rest_of_the_context(instance: Running, limit: dict[str, Any]) -> None:
    context = instance.post("/tokenize", {"prompt": "x"}).json()["max_model_len"]
    assert context == 2048
    endless = {**limit, "ignore_eos": True}
    chat = chat_of(instance, 1900)
    reason, usage = both(instance, {**chat, **endless})
    assert (reason, usage["completion_tokens"], usage["total_tokens"]) == ("length", 148, context)
    reason, usage = both(instance, {**chat, **limit})
    assert reason == "stop"
    assert usage["completion_tokens"] < 100


def test_c5_room_for_one_token_and_for_none(instance: Running) -> None:
    reason, usage = both(instance, {**chat_of(instance, 2047), "ignore_eos": True})
    assert (reason, usage["completion_tokens"], usage["total_tokens"]) == ("length", 1, 2048)
    refused = instance.post("/v1/chat/completions", {"model": NAME, **chat_of(instance, 2048)})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert error["message"].count("2048") == 2


def test_c5_an_answer_that_ends_with_its_last_token_has_stopped(instance: Running) -> None:
    body = chat_of(instance, 40)
    prompt = instance.post("/tokenize", body).json()["tokens"]
    ends_at = prompt.index(EOS) + 1  # the answer repeats the prompt, in which the system's message ends first
    for tokens, reason in ((ends_at, "stop"), (ends_at - 1, "length")):
        found, usage = both(instance, {**body, "max_tokens": tokens})
        assert (found, usage["completion_tokens"]) == (reason, tokens)


def test_min_tokens_and_ignore_eos_and_stop_token_ids(instance: Running) -> None:
    tokens = instance.post("/tokenize", {"prompt": "a b c d e f"}).json()["tokens"]
    first = instance.complete(prompt=tokens, stop_token_ids=[tokens[2]], max_tokens=20)
    assert first["choices"][0]["text"] == "a b"
    assert first["usage"]["completion_tokens"] == 3  # the one that stopped it was drawn, and counts
    later = instance.complete(prompt=tokens, stop_token_ids=[tokens[2], tokens[4]], min_tokens=4, max_tokens=20)
    assert later["choices"][0]["text"] == "a b c d"
    endless = instance.complete(prompt=tokens, ignore_eos=True, max_tokens=12)
    assert endless["choices"][0]["finish_reason"] == "length"
    assert endless["usage"]["completion_tokens"] == 12


def test_c4_equal_client_ids_are_both_served(instance: Running) -> None:
    answers: list[str] = []

    def ask(text: str) -> None:
        body = {"model": NAME, "prompt": text, "max_tokens": 60, "request_id": "same", "user": "same"}
        response = instance.post("/v1/completions", body, headers={"x-request-id": "same"})
        answers.append(response.json()["choices"][0]["text"])

    threads = [threading.Thread(target=ask, args=(f"answer number {i} of them",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [f"answer number {i} of them" for i in range(4)]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_j3_usage_is_exact_in_one_last_chunk(instance: Running, path: str) -> None:
    prompt = (
        {"prompt": "one two three"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    )
    body = {**prompt, "max_tokens": 7}
    want = instance.post(path, {"model": NAME, **body}).json()["usage"]
    events = instance.events(path, {**body, "stream_options": {"include_usage": True}})
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"] == []
    got = events[-2]["usage"]
    assert [event["usage"] for event in events[:-2]] == [None] * len(events[:-2])
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert got[name] == want[name]
    assert not any("usage" in event for event in instance.events(path, body)[:-1])


def test_usage_counts_cached_prompt_tokens(instance: Running) -> None:
    prompt = list(range(1000, 1100))
    first = instance.complete(prompt=prompt, max_tokens=1)["usage"]
    second = instance.complete(prompt=prompt, max_tokens=1)["usage"]
    salted = instance.complete(prompt=prompt, max_tokens=1, cache_salt="other tenant")["usage"]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (first, second, salted)]
    assert cached == [0, 96, 0]


def test_many_prompts_keep_their_order_and_their_sum(instance: Running) -> None:
    prompts = [f"prompt number {i}" for i in range(12)]  # more than there are rows
    whole = instance.complete(prompt=prompts, max_tokens=30)
    assert [choice["text"] for choice in whole["choices"]] == prompts
    events = instance.events("/v1/completions", {"prompt": prompts, "max_tokens": 30})
    gathered = [""] * 12
    for event in events[:-1]:
        gathered[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert gathered == prompts
    assert whole["usage"]["completion_tokens"] > whole["usage"]["prompt_tokens"]


def test_echo_and_logprobs_of_the_old_form(instance: Running) -> None:
    answer = instance.complete(prompt="red green", max_tokens=2, logprobs=2, echo=True)["choices"][0]
    assert answer["text"].startswith("red green")
    scored = answer["logprobs"]
    lengths = {len(scored[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    assert len(lengths) == 1
    answer = instance.complete(prompt="red green", max_tokens=0, echo=True)
    assert answer["choices"][0]["text"] == "red green"
    assert answer["usage"]["completion_tokens"] == 0


def test_chat_logprobs_have_tokens_and_bytes(instance: Running) -> None:
    body = {"messages": [{"role": "user", "content": "é🔥"}], "max_tokens": 40, "logprobs": True, "top_logprobs": 2}
    answer = instance.post("/v1/chat/completions", {"model": NAME, **body}).json()["choices"][0]
    entries = answer["logprobs"]["content"]
    special = re.compile(rb"<\|\w+\|>")
    raw = b"".join(bytes(entry["bytes"]) for entry in entries if not special.fullmatch(bytes(entry["bytes"])))
    assert raw.decode() == answer["message"]["content"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    streamed = instance.events("/v1/chat/completions", {**body, "stream": True})
    again = [e for event in streamed[:-1] if (part := event["choices"][0]["logprobs"]) for e in part["content"]]
    assert again == entries


def test_openai_sdk_lists_models_and_streams_a_chat(instance: Running) -> None:
    client = OpenAI(base_url=f"{instance.url}/v1", api_key=instance.token, max_retries=0)
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).owned_by == "tursiops"
    # The engine repeats its prompt up to the first <|im_end|>: the system message.
    messages: Any = [
        {"role": "system", "content": [{"type": "text", "text": "repeat me 🔥"}]},
        {"role": "user", "content": "go"},
    ]
    stream = client.chat.completions.create(
        model=NAME, messages=messages, max_tokens=100, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "repeat me 🔥" in text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    plain = client.completions.create(model=NAME, prompt="plain", max_tokens=10)
    assert plain.choices[0].text == "plain"


def test_f5_j2_client_that_leaves_is_aborted_within_a_second_and_counted(instance: Running) -> None:
    aborted = 'requests_finished_total{reason="abort"}'
    before = instance.metric(aborted)
    lengths = instance.metric("request_e2e_seconds_count")
    body = {"model": NAME, "prompt": list(range(500)), "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with instance.client.stream("POST", instance.url + "/v1/completions", json=body) as response:
        lines = response.iter_lines()  # kept: an iterator that is dropped closes the response
        next(lines)
        assert instance.metric("requests_running") == 1
    instance.eventually(lambda: instance.metric(aborted) == before + 1, 1.0)
    instance.eventually(lambda: instance.metric("requests_running") == 0, 1.0)
    assert instance.metric("kv_blocks_used") == 0
    assert instance.metric("request_e2e_seconds_count") == lengths + 1


def test_f5_client_that_leaves_without_streaming_is_aborted_too(instance: Running) -> None:
    aborted = 'requests_finished_total{reason="abort"}'
    before = instance.metric(aborted)
    body = json.dumps({"model": NAME, "prompt": list(range(500)), "max_tokens": 1500, "ignore_eos": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {instance.token}\r\n"
    port = int(instance.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        instance.eventually(lambda: instance.metric("requests_running") == 1)
    instance.eventually(lambda: instance.metric(aborted) == before + 1, 1.0)
    instance.eventually(lambda: instance.metric("requests_running") == 0, 1.0)


def test_client_that_does_not_read_hurts_nobody(instance: Running) -> None:
    body = {"model": NAME, "prompt": "x" * 50, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with instance.client.stream("POST", instance.url + "/v1/completions", json=body):
        started = time.monotonic()
        for _ in range(5):
            assert instance.complete(prompt="quick", max_tokens=5)["choices"][0]["text"] == "quick"
        assert time.monotonic() - started < 10


def test_metrics_have_the_names_of_the_contract(instance: Running) -> None:
    instance.complete(prompt="a b c", max_tokens=3)
    text = instance.client.get(instance.url + "/metrics").text
    for name in (
        "requests_running",
        "requests_waiting",
        "kv_blocks_used",
        "kv_blocks_total",
        "prefix_hit_tokens_total",
        "prompt_tokens_total",
        "generated_tokens_total",
        "request_ttft_seconds_bucket",
        "request_tpot_seconds_bucket",
        'requests_finished_total{reason="length"}',
        "preemptions_total",
    ):
        assert f"tursiops_engine_{name}" in text
    assert instance.metric("kv_blocks_total") == 199
    assert instance.metric("generated_tokens_total") > 0
