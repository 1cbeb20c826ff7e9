"""Limits of keys, reserved atomically in Redis and shared by all gateways."""

import asyncio

import pytest
from redis.asyncio import Redis
from tursiops.gateway.app import new_redis
from tursiops.gateway.callers import Caller
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.limits import Limiter

from tests.gateway_bench import instance, route, serving


@pytest.fixture(params=["shared", "local"])
async def limiter(request, redis, tmp_path):
    """The same rules in Redis, and in the process while Redis is away."""
    client: Redis = redis if request.param == "shared" else new_redis(f"unix://{tmp_path}/no.sock")
    yield Limiter(client)
    if request.param == "local":
        await client.aclose()


def caller(**limits):
    return Caller(team="t", key="k", **limits)


async def admitted(limiter, who, count, tokens):
    held = await asyncio.gather(
        *(limiter.reserve(who, f"r{number}", tokens) for number in range(count)), return_exceptions=True
    )
    refused = [answer for answer in held if isinstance(answer, GatewayError)]
    return [answer for answer in held if not isinstance(answer, GatewayError)], refused


async def test_case_39_only_what_fits_is_admitted_and_the_rest_is_returned(limiter):
    """Five at once that may use 40 tokens each, limit 100: two run. They use 10 each, so two more can run."""
    who = caller(tpm=100)
    held, refused = await admitted(limiter, who, 5, 40)
    assert (len(held), len(refused)) == (2, 3)
    assert {error.code for error in refused} == {"tokens_per_minute"}
    assert all(error.status == 429 and 0 < error.retry_after <= 60 for error in refused)
    for reservation in held:
        await limiter.settle(reservation, 10)
        await limiter.settle(reservation, 10)  # a second time gives nothing more
    held, refused = await admitted(limiter, who, 5, 40)
    assert (len(held), len(refused)) == (2, 3)


async def test_use_over_the_estimate_is_a_debt(limiter):
    [held], _ = await admitted(limiter, caller(tpm=100), 1, 10)
    await limiter.settle(held, 150)
    _, [refused] = await admitted(limiter, caller(tpm=100), 1, 1)
    assert refused.retry_after > 25


async def test_requests_per_minute(limiter):
    held, refused = await admitted(limiter, caller(rpm=3), 5, 1)
    assert (len(held), len(refused)) == (3, 2)
    assert refused[0].code == "requests_per_minute"
    assert 15 < refused[0].retry_after <= 20


async def test_parallel_places_come_back(limiter):
    who = caller(parallel=2)
    held, refused = await admitted(limiter, who, 4, 1)
    assert (len(held), len(refused)) == (2, 2)
    await limiter.settle(held[0], 1)
    held, refused = await admitted(limiter, who, 4, 1)
    assert len(held) == 1


async def test_refused_by_one_limit_takes_nothing_of_the_others(limiter):
    who = caller(rpm=100, tpm=100, parallel=1)
    [held], _ = await admitted(limiter, who, 1, 60)
    _, refused = await admitted(limiter, who, 5, 1)
    assert {error.code for error in refused} == {"parallel"}
    await limiter.settle(held, 60)
    held, _ = await admitted(limiter, who, 1, 40)
    assert len(held) == 1


async def test_request_that_can_never_fit_says_so(limiter):
    with pytest.raises(GatewayError, match="lower max_tokens") as caught:
        await limiter.reserve(caller(tpm=100), "r", 101)
    assert caught.value.retry_after is None


async def test_limit_that_is_set_later_starts_full(limiter):
    await admitted(limiter, caller(rpm=10), 1, 50)
    held, _ = await admitted(limiter, caller(rpm=10, tpm=100), 1, 100)
    assert len(held) == 1


async def test_case_39_two_gateways_share_one_limit(bench, engines, config):
    engines[0].behaviour.first_after = 0.3
    limited = bench.new_key(tpm=100)
    await bench.publish(route("m", instance(engines[0], "a")))
    async with serving(config) as (_, other):
        body = {"model": "m", "prompt": "x", "max_tokens": 30}
        headers = {"Authorization": f"Bearer {limited}"}

        async def ask(url):
            async with bench.session.post(url + "/v1/completions", json=body, headers=headers) as response:
                return response.status, await response.json(), response.headers.get("Retry-After")

        answers = await asyncio.gather(*(ask(url) for url in [bench.url, other] * 3))
    statuses = sorted(status for status, _, _ in answers)
    assert statuses == [200, 200, 429, 429, 429, 429], statuses  # about 41 tokens each are reserved
    for status, content, wait in answers:
        if status == 429:
            assert content["error"]["type"] == "rate_limit_error"
            assert int(wait) >= 1
