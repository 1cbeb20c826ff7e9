"""What an engine's refusals mean: who is to blame, and whether another instance may be asked."""

import orjson
import pytest
from tursiops.gateway.engine_client import BadAnswer, Interrupted, Unreachable
from tursiops.gateway.failures import interpret, of_exception

from tests.gateway_bench import TEAM, instance, route


def said(code: str) -> bytes:
    return orjson.dumps({"error": {"message": "no", "type": "server_error", "param": None, "code": code}})


@pytest.mark.parametrize("code", ["queue_timeout", "first_token_timeout", "total_timeout"])
def test_a_requests_own_time_out_is_told_as_it_is_and_not_tried_again(code):
    failure = interpret(504, said(code), {})
    assert (failure.status, failure.retry, failure.blames_instance) == (504, False, False)
    error = failure.as_error()
    assert (error.status, error.body()["error"]["code"]) == (504, code)


def test_a_redirection_is_not_followed_and_another_instance_may_be_asked():
    failure = interpret(302, b"", {"Location": "http://elsewhere"})
    assert (failure.kind, failure.status, failure.retry, failure.blames_instance) == ("status", 502, True, True)


def test_other_504s_are_failures_of_the_instance():
    failure = interpret(504, b"upstream timed out", {})
    assert (failure.status, failure.retry, failure.blames_instance) == (502, True, True)


def test_a_team_over_its_share_blames_nobody_and_another_instance_may_have_room():
    failure = interpret(429, said("tenant_queue_full"), {"Retry-After": "7"})
    assert (failure.status, failure.retry, failure.blames_instance, failure.retry_after) == (429, True, False, 7)
    assert interpret(503, said("overloaded"), {"Retry-After": "7"}).blames_instance


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unreachable("no connection"), ("unreachable", 503)),
        (Interrupted("it was reset"), ("connection", 502)),
        (BadAnswer("the engine's answer is no HTTP"), ("connection", 502)),
    ],
)
def test_a_connection_that_breaks_before_the_answer_blames_the_instance_and_is_tried_elsewhere(error, told):
    failure = of_exception(error)
    assert (failure.kind, failure.status, failure.retry, failure.blames_instance) == (*told, True, True)


async def test_a_redirection_reaches_no_other_address(bench, engines):
    engines[0].behaviour.status = 307
    await bench.publish(route("m", instance(engines[0], "a")))
    response, raw = await bench.stream()
    assert response.status == 502
    assert b"the engine answered 307" in raw or b"status 307 as told" in raw
    assert not engines[1].requests


async def test_engines_are_told_whose_request_it_is(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    response, _ = await bench.stream()
    assert response.status == 200
    assert engines[0].requests[0]["_headers"]["X-Tursiops-Team"] == TEAM
