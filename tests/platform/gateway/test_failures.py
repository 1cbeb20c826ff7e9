"""What an engine's refusals mean: who is to blame, and whether another instance may be asked."""

import orjson
import pytest
from tursiops.gateway.failures import interpret

from tests.gateway_bench import TEAM, instance, route


def said(code: str) -> bytes:
    return orjson.dumps({"error": {"message": "no", "type": "server_error", "param": None, "code": code}})


@pytest.mark.parametrize("code", ["queue_timeout", "first_token_timeout", "total_timeout"])
def test_a_requests_own_time_out_is_told_as_it_is_and_not_tried_again(code):
    failure = interpret(504, said(code), {})
    assert (failure.status, failure.retry, failure.blames_instance) == (504, False, False)
    error = failure.as_error()
    assert (error.status, error.body()["error"]["code"]) == (504, code)


def test_other_504s_are_failures_of_the_instance():
    failure = interpret(504, b"upstream timed out", {})
    assert (failure.status, failure.retry, failure.blames_instance) == (502, True, True)


def test_a_team_over_its_share_blames_nobody_and_another_instance_may_have_room():
    failure = interpret(429, said("tenant_queue_full"), {"Retry-After": "7"})
    assert (failure.status, failure.retry, failure.blames_instance, failure.retry_after) == (429, True, False, 7)
    assert interpret(503, said("overloaded"), {"Retry-After": "7"}).blames_instance


async def test_engines_are_told_whose_request_it_is(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    response, _ = await bench.stream()
    assert response.status == 200
    assert engines[0].requests[0]["_headers"]["X-Tursiops-Team"] == TEAM
