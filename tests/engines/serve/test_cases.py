"""Cases of cases/engine.md (docs/cases.md) over HTTP, as kinds: the same at every endpoint, streamed and whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.instances import NAME, Running
from tests.engines.serve.test_bad_input import VOCAB

TEXT = "one two three four five six"
TURN = {"messages": [{"role": "user", "content": TEXT}]}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": TEXT, "max_tokens": 12},
    "/v1/chat/completions": {**TURN, "max_tokens": 12},
    "/v1/responses": {"input": TEXT, "max_output_tokens": 12},
    "/v1/messages": {**TURN, "max_tokens": 12},
}
every = pytest.mark.parametrize("path", ASKED)
FIELDS = {"/v1/completions": "prompt", "/v1/responses": "input"}


def fault(instance: Running, path: str, body: dict[str, Any]) -> str:
    """The message of a 400; streaming and not streaming refuse alike."""
    answers = [instance.post(path, {"model": NAME, **body, "stream": stream}) for stream in (False, True)]
    assert [answer.status_code for answer in answers] == [400, 400], [answer.text for answer in answers]
    whole, streamed = (answer.json()["error"] for answer in answers)
    assert whole == streamed
    message: str = whole["message"]
    return message


@every
@pytest.mark.parametrize("wrong", [VOCAB + 1, VOCAB, -1, 2**40])
def test_c2_a_stop_token_that_the_model_lacks(instance: Running, path: str, wrong: int) -> None:
    body = {**ASKED[path], "stop_token_ids": [wrong], "min_tokens": 2}
    assert f"token id {wrong}" in fault(instance, path, body)


@every
@pytest.mark.parametrize("field", ["logit_bias", "allowed_token_ids"])
def test_c2_any_other_token_that_the_model_lacks(instance: Running, path: str, field: str) -> None:
    value: Any = {str(VOCAB): 1} if field == "logit_bias" else [VOCAB]
    assert field in fault(instance, path, {**ASKED[path], field: value})


@every
def test_c5_an_empty_prompt_and_one_that_fills_the_context(instance: Running, path: str) -> None:
    field = FIELDS.get(path, "messages")
    empty: Any = [] if field == "messages" else ""
    assert field in fault(instance, path, {**ASKED[path], field: empty})
    long = " sea" * 4000
    full: Any = [{"role": "user", "content": long}] if field == "messages" else long
    message = fault(instance, path, {**ASKED[path], field: full})
    assert "context length is 2048" in message


@every
def test_c5_without_a_limit_there_is_a_default_or_a_400(instance: Running, path: str) -> None:
    body = {name: value for name, value in ASKED[path].items() if not name.startswith("max_")}
    answer = instance.post(path, {"model": NAME, **body})
    if path == "/v1/messages":  # Anthropic's API wants one
        assert (answer.status_code, "max_tokens" in answer.text) == (400, True)
    else:
        assert answer.status_code == 200


def test_d4_a_prompt_longer_than_a_step_is_served(instance: Running) -> None:
    prompt = [number % 900 + 100 for number in range(2000)]  # a step takes 128
    for _ in range(2):  # computed, and from the cache
        assert (
            instance.complete(prompt=prompt, max_tokens=4, return_token_ids=True)["choices"][0]["token_ids"]
            == (prompt[:4])
        )


COUNTS = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


def used(usage: dict[str, Any]) -> tuple[int, int]:
    """(tokens of the prompt, cached ones included; generated tokens), by any API's names."""
    prompt, generated = (usage.get(ours, usage.get(theirs)) for ours, theirs in COUNTS.items())
    return prompt + usage.get("cache_read_input_tokens", 0), generated


def streamed_usage(path: str, events: list[Any]) -> list[tuple[int, int]]:
    """All final usages that a stream told."""
    if path == "/v1/messages":
        begun = next(event["message"]["usage"] for event in events if event["type"] == "message_start")
        return [used({**begun, **event["usage"]}) for event in events if event["type"] == "message_delta"]
    if path == "/v1/responses":
        ended = ("response.completed", "response.incomplete")
        return [used(event["response"]["usage"]) for event in events if event["type"] in ended]
    return [used(event["usage"]) for event in events if event != "[DONE]" and event.get("usage")]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"stop_on": "sentence"},
    {"ignore_eos": True},
    {"use_beam_search": True, "beam_width": 3},
    {"loop_detection": {"min_repeats": 2, "max_period": 4}},
]
OPENAIS: list[dict[str, Any]] = [{"stop": ["three"]}, {"n": 3}, {"truncate_prompt_tokens": 5}, {"logprobs": 1}]
"""Fields that the other spellings of a chat have no place for, or write otherwise."""
STREAMED = [(path, options) for path in ASKED for options in OPTIONS]
STREAMED += [(path, options) for path in list(ASKED)[:2] for options in OPENAIS]


@pytest.mark.parametrize(
    ("path", "options"), STREAMED, ids=lambda part: part if isinstance(part, str) else str([*part])
)
def test_j3_the_usage_of_a_stream_is_that_of_the_whole_answer(
    instance: Running, path: str, options: dict[str, Any]
) -> None:
    if "chat" in path and "logprobs" in options:
        options = {"logprobs": True}
    body = {"model": NAME, **ASKED[path], **options, "temperature": 0}
    whole = used(instance.post(path, body).json()["usage"])
    if path in list(ASKED)[:2]:
        body["stream_options"] = {"include_usage": True}
    assert streamed_usage(path, instance.events(path, body)) == [whole]
    assert whole[1] > 0


def ended(instance: Running) -> dict[str, float]:
    """How many requests each of the metrics about endings has seen."""
    text = instance.client.get(instance.url + "/metrics").text
    samples = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}
    prefix = "tursiops_engine_request"
    counts = {name: samples[f"{prefix}_{name}_count"] for name in ("e2e_seconds", "prompt_tokens", "output_tokens")}
    counts["finished"] = sum(value for name, value in samples.items() if name.startswith(f"{prefix}s_finished_total"))
    return counts


def test_j2_every_ending_is_counted_once_and_in_every_histogram(instance: Running) -> None:
    before = ended(instance)
    aborted = 'requests_finished_total{reason="abort"}'
    gone = instance.metric(aborted)
    long = {"model": NAME, "prompt": list(range(500)), "max_tokens": 1500, "ignore_eos": True, "stream": True}
    streams = [instance.client.stream("POST", instance.url + "/v1/completions", json=long) for _ in range(9)]
    responses = [stream.__enter__() for stream in streams[:8]]  # all rows
    lines = [response.iter_lines() for response in responses]  # kept: an iterator that is dropped closes the response
    for each in lines:
        next(each)
    waiting = instance.post("/v1/completions", {**long, "stream": False, "timeout": {"queue": 0.05}})
    assert waiting.status_code == 504  # one that never got a row
    for stream in streams[:8]:
        stream.__exit__(None, None, None)
    instance.complete(prompt=TEXT, max_tokens=2)
    instance.eventually(lambda: instance.metric(aborted) == gone + 8)
    after = ended(instance)
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 8 + 1 + 1)
