"""/v1/messages and /v1/responses: passed on as they come, billed, failed over and refused in their own shape."""

import json

import aiohttp
import pytest
from tursiops.gateway.dialects import ANTHROPIC, OPENAI, RESPONSES
from tursiops.gateway.events import EventScanner, split

from tests.gateway_bench import instance, route

PATHS = ["/v1/messages", "/v1/responses"]
BODIES = {"/v1/messages": {"messages": [], "max_tokens": 6}, "/v1/responses": {"input": "x", "max_output_tokens": 6}}
ENDS = {"/v1/messages": "message_stop", "/v1/responses": "response.completed"}


async def ask(bench, path, **fields):
    body = {"model": "m", "stream": True} | BODIES[path] | fields
    async with bench.post(body, path=path) as response:
        return response, await response.read()


def events(raw: bytes) -> list[dict]:
    return [json.loads(event.partition(b"data: ")[2]) for event in split(raw)]


@pytest.mark.parametrize("path", PATHS)
async def test_stream_passes_and_is_billed(bench, engines, path):
    await bench.publish(route("m", instance(engines[0], "a")))
    response, raw = await ask(bench, path)
    assert response.status == 200
    assert events(raw)[-1]["type"] == ENDS[path]
    assert sum(event["type"].endswith("delta") for event in events(raw)) >= 6
    assert "stream_options" not in engines[0].requests[0]
    [record] = await bench.usage(1)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (7, 3, 6)
    assert (record.status, record.finish_reason, record.path) == (200, "stop", path)


@pytest.mark.parametrize("path", PATHS)
async def test_whole_answer_is_billed(bench, engines, path):
    await bench.publish(route("m", instance(engines[0], "a")))
    response, _ = await ask(bench, path, stream=False)
    assert response.status == 200
    [record] = await bench.usage(1)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (7, 3, 6)
    assert record.finish_reason == "stop"


@pytest.mark.parametrize("path", PATHS)
async def test_error_before_the_first_text_goes_elsewhere(bench, engines, path):
    engines[0].behaviour.error_at = 0
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    for _ in range(2):
        _, raw = await ask(bench, path)
        assert events(raw)[-1]["type"] == ENDS[path]


@pytest.mark.parametrize("path", PATHS)
async def test_broken_stream_ends_in_an_error_of_its_own_shape(bench, engines, path):
    engines[0].behaviour.cut_at = 3
    await bench.publish(route("m", instance(engines[0], "a")))
    _, raw = await ask(bench, path)
    last = events(raw)[-1]
    assert last["type"] == "error"
    assert "broke off" in (last["error"]["message"] if path == "/v1/messages" else last["message"])
    [record] = await bench.usage(1)
    assert (record.status, record.completion_tokens) == (502, 3)
    assert record.prompt_tokens > 0


@pytest.mark.parametrize("path", PATHS)
async def test_clean_end_without_the_last_event_is_no_whole_answer(bench, engines, path):
    engines[0].behaviour.silent_end_at = 2
    await bench.publish(route("m", instance(engines[0], "a")))
    _, raw = await ask(bench, path)
    assert events(raw)[-1]["type"] == "error"


async def test_refusals_have_anthropics_shape_and_its_key_header_opens(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    body = {"model": "m"} | BODIES["/v1/messages"]
    async with aiohttp.ClientSession() as session:
        for headers, status, kind in (
            ({}, 401, "authentication_error"),
            ({"x-api-key": "ts-wrong"}, 401, "authentication_error"),
            ({"x-api-key": bench.key}, 200, None),
        ):
            async with session.post(bench.url + "/v1/messages", json=body, headers=headers) as response:
                answer = await response.json()
            assert response.status == status
            assert kind is None or answer["error"]["type"] == kind
            assert kind is None or answer["type"] == "error"
    async with bench.post(body | {"model": "none"}, path="/v1/messages") as response:
        assert (await response.json())["error"]["type"] == "not_found_error"


async def test_an_engines_refusal_keeps_its_message(bench, engines):
    engines[0].behaviour.status = 400
    await bench.publish(route("m", instance(engines[0], "a")))
    response, raw = await ask(bench, "/v1/messages")
    assert response.status == 400
    assert json.loads(raw) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "status 400 as told"},
    }


@pytest.mark.parametrize("dialect", [ANTHROPIC, OPENAI, RESPONSES])
@pytest.mark.parametrize(
    "data", [b"", b"[", b"{}", b"null", b"\xff", b'{"type": 3}', b'{"usage": {"input_tokens": "x"}}']
)
def test_odd_events_pass_as_they_are(dialect, data):
    scanner = EventScanner(dialect, keep_usage=False, limit=1_000)
    event = b"event: odd\ndata: " + data + b"\n\n"
    assert scanner.feed(event) == event
    assert not scanner.seen.done
