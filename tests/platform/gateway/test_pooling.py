"""Embeddings, scores and reranks through the gateway: billed by their prompt tokens, limited like the rest."""

import asyncio

import pytest

from tests.gateway_bench import instance, route, until

BODIES = {
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "base64"},
    "/v1/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/v1/rerank": {"query": "a", "documents": ["b", "c"]},
}


@pytest.mark.parametrize("path", sorted(BODIES))
async def test_billed_by_the_prompt(bench, engines, path):
    """Also where an engine tells the total alone."""
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", **BODIES[path]}, path=path) as response:
        assert response.status == 200
        assert "usage" in await response.json()
    [record] = await bench.usage(1)
    assert (record.path, record.prompt_tokens, record.completion_tokens) == (path, 7, 0)
    assert (record.status, record.instance_id, record.finish_reason) == (200, "a", "")
    [seen] = engines[0].requests
    assert {name: seen[name] for name in BODIES[path]} == BODIES[path]


async def test_stream_means_nothing_here(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "input": "x", "stream": True}, path="/v1/embeddings") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert (await response.json())["data"][0]["embedding"] == [0.5, -0.5]


async def test_many_texts_are_reserved_beyond_one_context(bench, engines):
    """A context of 10 tokens bounds each text, not the request: 4,000 bytes are about 1,000 tokens, over the limit."""
    await bench.publish(route("m", instance(engines[0], "a"), context_length=10))
    key = bench.new_key(tpm=500)
    await bench.publish(route("m", instance(engines[0], "a"), context_length=10))
    many = {"model": "m", "input": ["word " * 8] * 100}
    async with bench.post(many, path="/v1/embeddings", key=key) as response:
        assert response.status == 429
    async with bench.post({"model": "m", "input": "word"}, path="/v1/embeddings", key=key) as response:
        assert response.status == 200


async def test_a_client_that_leaves_pays_what_the_engine_was_given(bench, engines):
    engines[0].behaviour.first_after = 30
    await bench.publish(route("m", instance(engines[0], "a")))
    asked = asyncio.create_task(_post(bench, {"model": "m", "input": "word " * 100}))
    await until(lambda: engines[0].running == 1)
    asked.cancel()
    await until(lambda: engines[0].running == 0)
    [record] = await bench.usage(1)
    assert (record.status, record.disconnected) == (499, True)
    assert record.prompt_tokens > 50


async def test_another_instance_answers_where_one_fails(bench, engines):
    engines[0].behaviour.status = 503
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    for _ in range(4):
        async with bench.post({"model": "m", "input": "x"}, path="/v1/embeddings") as response:
            assert (response.status, response.headers["x-tursiops-instance"]) == (200, "b")
    assert {record.prompt_tokens for record in await bench.usage(4)} == {7}


async def _post(bench, body):
    async with bench.post(body, path="/v1/embeddings") as response:
        return await response.read()
