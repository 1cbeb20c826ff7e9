"""Waiting in bounded ways: for a place, for the first event, for a silent engine, for a client that takes nothing."""

import asyncio
import json
import time

import msgspec
import pytest

from tests.gateway_bench import full_port, instance, route, until


@pytest.fixture
def config(config, request):
    """The bounds of a test, from its mark `bounds`."""
    mark = request.node.get_closest_marker("bounds")
    return msgspec.structs.replace(config, **mark.kwargs) if mark else config


def completion(bench, **fields):
    async def ask():
        async with bench.post({"model": "m", "prompt": "x"} | fields, path="/v1/completions") as response:
            return response.status, await response.json()

    return ask()


@pytest.mark.bounds(per_instance=2, queue_length=3, queue_deadline=5.0)
async def test_queue_lets_in_what_fits_and_refuses_what_is_too_much(bench, engines):
    engines[0].behaviour.first_after = 0.3
    await bench.publish(route("m", instance(engines[0], "a")))
    answers = await asyncio.gather(*(completion(bench) for _ in range(7)))
    statuses = sorted(status for status, _ in answers)
    assert statuses == [200] * 5 + [503] * 2
    full = next(body for status, body in answers if status == 503)
    assert full["error"]["code"] == "overloaded"
    assert "3 requests wait" in full["error"]["message"]
    queued = sorted(record.queue_ms for record in await bench.usage(7) if record.status == 200)
    assert queued[1] < 100
    assert queued[2] > 200


@pytest.mark.bounds(per_instance=1, queue_deadline=0.2)
async def test_queue_deadline(bench, engines):
    engines[0].behaviour.first_after = 1.0
    await bench.publish(route("m", instance(engines[0], "a")))
    (first, _), (second, body) = await asyncio.gather(completion(bench), completion(bench))
    assert (first, second) == (200, 503)
    assert "within" in body["error"]["message"]


@pytest.mark.bounds(per_instance=1)
async def test_waiting_client_that_leaves_gives_its_turn_away(bench, engines):
    engines[0].behaviour.first_after = 0.5
    await bench.publish(route("m", instance(engines[0], "a")))
    first = asyncio.create_task(completion(bench))
    await until(lambda: engines[0].running == 1)
    leaving = asyncio.create_task(completion(bench))
    await asyncio.sleep(0.1)
    third = asyncio.create_task(completion(bench))
    await asyncio.sleep(0.1)
    leaving.cancel()
    assert (await first)[0] == 200
    assert (await third)[0] == 200
    assert len(engines[0].requests) == 2


@pytest.mark.bounds(ping_every=0.1)
async def test_streaming_client_gets_comments_while_it_waits(bench, engines):
    engines[0].behaviour.first_after = 0.35
    await bench.publish(route("m", instance(engines[0], "a")))
    response, raw = await bench.stream()
    assert response.status == 200
    assert raw.startswith(b": waiting\n\n: waiting\n\n")
    assert raw.endswith(b"data: [DONE]\n\n")
    [record] = await bench.usage(1)
    assert record.ttft_ms > 300, "a comment is no first token"


@pytest.mark.bounds(ping_every=0.1)
async def test_after_a_comment_a_failure_still_goes_elsewhere_and_else_is_an_event(bench, engines):
    for engine in engines:
        engine.behaviour.first_after = 0.25
    engines[0].behaviour.error_at = 0
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    for _ in range(2):
        _, raw = await bench.stream()
        assert raw.endswith(b"data: [DONE]\n\n")
    engines[1].behaviour.error_at = 0
    _, raw = await bench.stream()
    assert raw.startswith(b": waiting")
    assert json.loads(raw.rpartition(b"data: ")[2])["error"]["message"] == "KV cache lost"


@pytest.mark.bounds(connect_timeout=0.2)
async def test_engine_that_takes_no_connection_in_time_is_unreachable_and_another_is_asked(bench, engines):
    """A host that is gone answers nothing at all, not even a refusal."""
    with full_port() as url:
        await bench.publish(route("m", instance(engines[0], "a", url=url), instance(engines[1], "b")))
        answers = [await bench.stream() for _ in range(3)]
        assert [response.status for response, _ in answers] == [200] * 3
        assert [response.headers["x-tursiops-retries"] for response, _ in answers].count("1") >= 1
        await bench.publish(route("m", instance(engines[0], "a", url=url)))
        response, raw = await bench.stream()
    assert response.status == 503
    assert json.loads(raw)["error"]["code"] == "upstream_unreachable"


async def test_engine_that_came_back_under_its_address_is_asked_over_a_new_connection(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    for _ in range(3):
        response, _ = await bench.stream()
        assert (response.status, response.headers["x-tursiops-retries"]) == (200, "0")
        port = engines[0].port
        await engines[0].stop()
        await engines[0].start(port)


@pytest.mark.bounds(first_event_timeout=0.3)
async def test_engine_that_never_begins(bench, engines):
    engines[0].behaviour.first_after = 30
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b", state="draining")))
    response, raw = await bench.stream()
    assert response.status == 504
    assert len(engines[0].requests) == 1, "a long prompt is not begun again"
    assert json.loads(raw)["error"]["code"] == "upstream_timeout"


@pytest.mark.bounds(idle_timeout=0.5)
async def test_engine_that_falls_silent_ends_in_an_error_event(bench, engines):
    engines[0].behaviour.stall_at = 3
    await bench.publish(route("m", instance(engines[0], "a")))
    began = time.monotonic()
    _, raw = await bench.stream()
    assert time.monotonic() - began < 5
    error = json.loads(raw.rpartition(b"data: ")[2])["error"]
    assert error["code"] == "upstream_interrupted"
    assert "sent nothing" in error["message"]
    await until(lambda: engines[0].running == 0)


@pytest.mark.bounds(client_timeout=0.5)
async def test_client_that_takes_nothing_is_given_up(bench, engines):
    engines[0].behaviour.tokens = 200_000
    await bench.publish(route("m", instance(engines[0], "a")))
    body = {"model": "m", "messages": [], "stream": True}
    async with bench.post(body) as response:
        response._connection.transport.pause_reading() if response._connection else None
        await until(lambda: engines[0].running == 1)
        await until(lambda: engines[0].running == 0, 20)
    [record] = await bench.usage(1)
    assert (record.disconnected, record.status) == (True, 499)
