"""The way of a request through the gateway, with real engines' HTTP and a real Redis."""

import asyncio
import json
import time

import aiohttp
import msgspec
import pytest
from tursiops import secrets
from tursiops.gateway import records, traffic

from tests.gateway_bench import OTHER_TEAM, TEAM, Bench, instance, route, serving, until, until_async


def events(raw: bytes) -> list[str]:
    return [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]


def text_of(raw: bytes) -> str:
    parts = []
    for event in events(raw):
        if event != "[DONE]":
            for choice in json.loads(event).get("choices", []):
                parts.append(choice["delta"].get("content", "") if "delta" in choice else choice["text"])
    return "".join(parts)


async def test_stream_passes_and_is_billed_once(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    response, raw = await bench.stream()
    assert response.status == 200
    assert events(raw)[-1] == "[DONE]"
    assert len(text_of(raw).split()) == 20
    assert response.headers["x-tursiops-instance"] == "a"
    assert response.headers["x-tursiops-route"] == "only ready instance"
    assert response.headers["x-tursiops-retries"] == "0"
    assert float(response.headers["x-tursiops-overhead-ms"]) < 1000
    [record] = await bench.usage(1)
    assert record.request_id == response.headers["x-request-id"]
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 20, 3)
    assert (record.status, record.finish_reason, record.disconnected) == (200, "length", False)
    assert record.ttft_ms <= record.duration_ms


async def test_usage_is_always_asked_and_stripped_where_the_client_did_not_ask(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    _, without = await bench.stream()
    _, with_usage = await bench.stream(stream_options={"include_usage": True})
    assert b'"usage"' not in without
    assert b'"usage"' in with_usage
    assert all(seen["stream_options"] == {"include_usage": True} for seen in engines[0].requests)


async def test_whole_answer_with_the_engines_own_bytes(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "prompt": "x", "max_tokens": 5}, path="/v1/completions") as response:
        body = await response.json()
    assert body["choices"][0]["text"].split() == ["the", "quick", "brown", "fox", "jumps"]
    [record] = await bench.usage(1)
    assert (record.completion_tokens, record.path, record.finish_reason) == (5, "/v1/completions", "length")


async def test_tokenize_reaches_the_engine_and_is_not_billed(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "prompt": "ab"}, path="/v1/tokenize") as response:
        assert await response.json() == {"tokens": [97, 98]}
    async with bench.post({"model": "m", "tokens": [97]}, path="/v1/detokenize") as response:
        assert await response.json() == {"prompt": "a"}
    await bench.stream()
    assert [record.path for record in await bench.usage(1)] == ["/v1/chat/completions"]


async def test_models_of_the_key_only(bench, engines):
    one = instance(engines[0], "a")
    limited = bench.new_key(models=("m",))
    await bench.publish(route("m", one), route("n", one), route("secret", one, team=OTHER_TEAM))
    for key, names in ((bench.key, ["m", "n"]), (limited, ["m"])):
        async with bench.session.get(bench.url + "/v1/models", headers={"Authorization": f"Bearer {key}"}) as response:
            assert [model["id"] for model in (await response.json())["data"]] == names
    async with bench.post({"model": "secret"}) as response:
        assert response.status == 404
        error = (await response.json())["error"]
    assert error["param"] == "model"
    assert "Available: m, n." in error["message"]
    async with bench.post({"model": "n"}, key=limited) as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("body", "status", "param", "says"),
    [
        (b"{", 400, None, "not valid JSON"),
        (b"[1]", 400, None, "JSON object"),
        (b"\xff\xfe", 400, None, "not valid JSON"),
        (b"[" * 100_000, 400, None, "JSON"),
        (b'{"model": 5}', 400, "model", "as a string"),
        (b'{"model": "m", "stream": true, "x": ' + b"[" * 900 + b"]" * 900 + b"}", 400, None, "nested too deeply"),
        (b'{"messages": []}', 400, "model", "as a string"),
        (b'{"model": "m", "stream": "yes"}', 400, "stream", "true or false"),
        (b'{"model": "m", "stream": true, "stream_options": 3}', 400, "stream_options", "object"),
        (b'{"model": "' + b"x" * 5000 + b'"}', 404, "model", "There is no model"),
    ],
)
async def test_bad_input_gets_openais_error_shape(bench, engines, body, status, param, says):
    await bench.publish(route("m", instance(engines[0], "a")))
    headers = {"Authorization": f"Bearer {bench.key}", "Content-Type": "application/json"}
    async with bench.session.post(bench.url + "/v1/chat/completions", data=body, headers=headers) as response:
        assert response.status == status
        error = (await response.json())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert says in error["message"]
    assert len(error["message"]) < 500


async def test_body_over_the_limit_is_refused(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "prompt": "x" * (bench.config.body_limit + 1)}) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("times", [2, 3, 100])
async def test_client_that_sends_all_before_it_reads_sees_413_too(bench, engines, times):
    """Up to four times the limit; beyond, the connection may break as soon as the answer has left."""
    await bench.publish(route("m", instance(engines[0], "a")))
    size = bench.config.body_limit * times
    address = bench.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address[0], int(address[1]))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bench.key}\r\n"
    writer.write(f"{head}Content-Length: {size}\r\n\r\n".encode())
    if times < 4:
        writer.write(b"x" * size)
        await writer.drain()
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
    assert b"413" in answer
    writer.close()


async def test_client_that_stops_in_the_middle_of_its_body_is_given_up(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a")))
    bench.gateway._completions._config = msgspec.structs.replace(bench.config, client_timeout=0.2)
    address = bench.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address[0], int(address[1]))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bench.key}\r\n"
    writer.write(f'{head}Content-Length: 1000\r\n\r\n{{"model":'.encode())
    for _ in range(3):  # slow is no crime
        await asyncio.sleep(0.1)
        writer.write(b" ")
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 10)
    assert b" 408 " in answer
    assert b"body_timeout" in answer
    assert not engines[0].requests
    writer.close()


async def test_engines_refusal_reaches_the_client_unchanged_and_is_not_repeated(bench, engines):
    for engine in engines:
        engine.behaviour.status = 400
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    response, raw = await bench.stream()
    assert response.status == 400
    assert json.loads(raw)["error"]["code"] == "fake"
    assert len(engines[0].requests) + len(engines[1].requests) == 1


@pytest.mark.parametrize(
    "token", ["", "Bearer", "Bearer nonsense", "Bearer ts-unknown", "Bearer tsi.a.b", "Basic eA=="]
)
async def test_bad_keys_are_401(bench, engines, token):
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.session.post(
        bench.url + "/v1/chat/completions", json={"model": "m"}, headers={"Authorization": token} if token else {}
    ) as response:
        assert response.status == 401
        assert (await response.json())["error"]["type"] == "authentication_error"


async def test_expired_key_is_401(bench, engines):
    expired = bench.new_key(expires_at=time.time() - 1)
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m"}, key=expired) as response:
        assert response.status == 401
        assert (await response.json())["error"]["code"] == "expired_api_key"


async def test_revoked_key_is_refused_with_the_next_snapshot(bench, engines):
    doomed = bench.new_key()
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "messages": []}, key=doomed) as response:
        assert response.status == 200
    began = time.monotonic()
    del bench.keys[next(digest for digest in bench.keys if digest != next(iter(bench.keys)))]
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "messages": []}, key=doomed) as response:
        assert response.status == 401
    assert time.monotonic() - began < 5


async def test_known_model_without_instances_is_503_with_its_reason(bench):
    await bench.publish(route("m", reason="Loading weights, 40 %."), route("off", desired="stopped"))
    async with bench.post({"model": "m"}) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "5"
        assert "Loading weights, 40 %." in (await response.json())["error"]["message"]
    async with bench.post({"model": "off"}) as response:
        assert (await response.json())["error"]["code"] == "model_stopped"


async def test_case_14_and_17_one_worker_gone_others_keep_answering(bench, engines):
    """A dead replica costs no request while another lives; after the next snapshot it is not even tried."""
    both = [instance(engines[0], "a"), instance(engines[1], "b")]
    await bench.publish(route("m", *both))
    await engines[0].stop()
    answers = [await bench.stream() for _ in range(8)]
    assert {response.status for response, _ in answers} == {200}
    assert {response.headers["x-tursiops-instance"] for response, _ in answers} == {"b"}
    await bench.publish(route("m", both[1]))
    response, _ = await bench.stream()
    assert response.headers["x-tursiops-retries"] == "0"
    async with bench.session.get(bench.url + "/v1/models", headers={"Authorization": f"Bearer {bench.key}"}) as models:
        assert models.status == 200


BOTH = pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])


@BOTH
async def test_case_37_error_before_the_first_byte_goes_elsewhere(bench, engines, path):
    """Refused connection, 500, and a 200 whose first event is an error (also right after the role) fail over."""
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    for broken in ({"status": 500}, {"error_at": 0}, {"error_at": 0, "role_first": False}, {"cut_at": 0}):
        engines[0].behaviour = type(engines[0].behaviour)(**broken)
        before = len(engines[0].requests)
        await asyncio.sleep(bench.config.cooldown)  # a cooling instance would not be asked at all
        tries = [await bench.stream(path=path) for _ in range(2)]
        assert [response.status for response, _ in tries] == [200, 200], broken
        assert all(events(raw)[-1] == "[DONE]" and len(text_of(raw).split()) == 20 for _, raw in tries)
        assert len(engines[0].requests) > before, "the broken one was never asked"
    records = await bench.usage(8)
    assert len({record.request_id for record in records}) == 8
    assert sum(record.retries for record in records) >= 4


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_case_37_a_client_may_refuse_retries(bench, engines, path, stream):
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    for engine in engines:
        engine.behaviour.status = 500
    headers = {"Authorization": f"Bearer {bench.key}"}
    body = {"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}], "stream": stream}
    for more, asked in (({"x-tursiops-retry": "off"}, 1), ({}, bench.config.attempts)):
        await asyncio.sleep(bench.config.cooldown)
        before = sum(len(engine.requests) for engine in engines)
        async with bench.session.post(bench.url + path, json=body, headers=headers | more) as response:
            assert response.status == 502
            assert response.headers["x-tursiops-retries"] == str(asked - 1)
        assert sum(len(engine.requests) for engine in engines) - before == asked


@BOTH
async def test_case_37_whole_answer_that_breaks_goes_elsewhere_as_nothing_has_left(bench, engines, path):
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    engines[0].behaviour.cut_at = 5
    for _ in range(2):
        async with bench.post({"model": "m", "prompt": "x", "messages": []}, path=path) as response:
            assert response.status == 200
            (choice,) = (await response.json())["choices"]
        assert len((choice.get("text") or choice["message"]["content"]).split()) == 20
    assert len(engines[0].requests) >= 1, "the broken one was never asked"
    assert [record.status for record in await bench.usage(2)] == [200, 200]


@BOTH
async def test_case_37_error_after_bytes_is_an_error_event(bench, engines, path):
    """Killed engine, clean end without [DONE], error event: never a silent success, never repeated text."""
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    for broken in ({"cut_at": 5}, {"silent_end_at": 5}, {"error_at": 5}):
        for engine in engines:
            engine.behaviour = type(engine.behaviour)(interval=0.01, **broken)
        asked = sum(len(engine.requests) for engine in engines)
        response, raw = await bench.stream(path=path)
        assert response.status == 200
        assert sum(len(engine.requests) for engine in engines) == asked + 1, "asked again after bytes had left"
        assert text_of(raw[: raw.rfind(b'data: {"error"')]).split() == ["the", "quick", "brown", "fox", "jumps"], broken
        last = events(raw)[-1]
        assert last != "[DONE]"
        assert json.loads(last)["error"]["message"]
    records = await bench.usage(3)
    assert [record.status for record in records] == [502, 502, 502]
    assert {record.completion_tokens for record in records} == {5}
    assert {record.path for record in records} == {path}
    assert [record.retries for record in records] == [0, 0, 0]


async def test_all_instances_broken_ends_in_an_error_after_bounded_tries(bench, engines):
    for engine in engines:
        engine.behaviour.status = 500
    await bench.publish(route("m", instance(engines[0], "a"), instance(engines[1], "b")))
    response, raw = await bench.stream()
    assert response.status == 502
    assert json.loads(raw)["error"]["message"]
    assert len(engines[0].requests) + len(engines[1].requests) == bench.config.attempts


async def test_client_that_leaves_closes_upstream_within_a_second(bench, engines):
    engines[0].behaviour.interval = 0.05
    engines[0].behaviour.tokens = 1000
    await bench.publish(route("m", instance(engines[0], "a")))
    body = {"model": "m", "messages": [], "stream": True}
    async with bench.post(body) as response:
        await response.content.readany()
        await until(lambda: engines[0].running == 1)
        await asyncio.sleep(0.3)
        response.close()
        left = time.perf_counter()
    await until(lambda: engines[0].closed_at)
    assert engines[0].closed_at[0] - left < 1
    [record] = await bench.usage(1)
    assert record.disconnected
    assert record.status == 499
    assert 2 <= record.completion_tokens <= 30
    await asyncio.sleep(0.2)
    assert len(await bench.usage(1)) == 1


async def test_client_that_leaves_while_waiting_closes_upstream(bench, engines):
    engines[0].behaviour.first_after = 30
    await bench.publish(route("m", instance(engines[0], "a")))
    for stream in (True, False):
        sent = asyncio.create_task(bench.post({"model": "m", "messages": [], "stream": stream})._coro)
        await until(lambda: engines[0].running == 1)
        sent.cancel()
        await until(lambda: engines[0].running == 0, 1)
    for record in await bench.usage(2):
        assert record.completion_tokens == 0
        assert record.prompt_tokens > 0, "the engine was at work on its prompt"


async def test_draining_instances_take_no_new_request(bench, engines):
    await bench.publish(route("m", instance(engines[0], "a", state="draining"), instance(engines[1], "b")))
    answers = [await bench.stream() for _ in range(4)]
    assert {response.headers["x-tursiops-instance"] for response, _ in answers} == {"b"}


async def test_internal_bearer_uses_its_teams_models(bench, engines):
    from tursiops import secrets

    one = instance(engines[0], "a")
    await bench.publish(route("m", one), route("n", one, team=OTHER_TEAM))
    token = secrets.sign_internal(OTHER_TEAM, "0198a000-0000-7000-8000-00000000000a")
    async with bench.post({"model": "n", "messages": []}, key=token) as response:
        assert response.status == 200
    async with bench.post({"model": "m", "messages": []}, key=token) as response:
        assert response.status == 404
    [record] = await bench.usage(1)
    assert (record.user_id, record.api_key_id) == ("0198a000-0000-7000-8000-00000000000a", None)


async def test_unknown_paths_of_v1_never_reach_web(bench):
    await bench.publish()
    async with bench.session.get(bench.url + "/v1/images/generations") as response:
        assert response.status == 404
        assert "/v1/chat/completions" in (await response.json())["error"]["message"]
    async with bench.session.get(bench.url + "/v1/chat/completions") as response:
        assert response.status == 405


async def test_whole_answer_that_tells_no_usage_is_billed_its_prompt(bench, engines, monkeypatch):
    monkeypatch.setattr(engines[0], "_usage", lambda tokens: {"prompt_tokens": None, "completion_tokens": None})
    await bench.publish(route("m", instance(engines[0], "a")))
    async with bench.post({"model": "m", "prompt": "x" * 400}, path="/v1/completions") as response:
        assert response.status == 200
    monkeypatch.setattr(engines[0], "_usage", lambda tokens: None)
    async with bench.post({"model": "m", "prompt": "x" * 400}, path="/v1/completions") as response:
        assert response.status == 200
    told, untold = await bench.usage(2)
    assert (told.prompt_tokens, told.completion_tokens) == (0, 0), "null is what this engine says"
    assert untold.prompt_tokens >= 100


async def test_role_chunks_of_several_answers_are_no_tokens(bench, engines):
    engines[0].behaviour.cut_at = 5
    await bench.publish(route("m", instance(engines[0], "a")))
    await bench.stream(n=3)  # the fake engine sends one role chunk; an engine sends one for each answer
    [record] = await bench.usage(1)
    assert record.completion_tokens == 5 + 1 - 3


async def test_stream_that_the_gateways_end_cuts_is_billed_what_had_passed(config, redis, engines):
    """Its time to drain is over: the server cancels it, and the ledger closes after the bill."""
    engines[0].behaviour.tokens, engines[0].behaviour.interval = 5_000, 0.01
    async with aiohttp.ClientSession() as session, serving(config) as (gateway, url):
        made = Bench(config, redis, gateway, session, url)
        made.key = made.new_key()
        await made.publish(route("m", instance(engines[0], "a")))
        response = await made.post({"model": "m", "prompt": "x", "stream": True}, path="/v1/completions")
        read = b""
        while read.count(b"data: ") < 30:
            read += await response.content.readany()
    rows = await redis.xrange(records.STREAM)
    found = [records.decode(fields[records.FIELD]) for _, fields in rows]
    [record] = {each.request_id: each for each in found}.values()  # one may arrive twice: the database keeps the first
    assert (record.status, record.error_code) == (502, "gateway_stopped")
    assert record.completion_tokens >= 30
    assert record.prompt_tokens > 0
    assert not list((config.run_dir / "usage-open").glob("*"))


async def test_prompts_of_a_consenting_key_are_kept_masked_and_others_are_not(bench, engines):
    consenting = bench.new_key(consents=True)
    await bench.publish(route("m", instance(engines[0], "a")))
    for key in ("", consenting):
        said = [{"role": "user", "content": f"I am a@b.cd, with {'consent' if key else 'none'}"}]
        async with bench.post({"model": "m", "messages": said}, key=key) as response:
            assert response.status == 200
    await until_async(lambda: bench.redis.llen(traffic.key_of(TEAM)), 1, 5)
    await bench.usage(2)
    [sealed] = await bench.redis.lrange(traffic.key_of(TEAM), 0, -1)
    row = json.loads(secrets.decrypt(traffic.LABEL, sealed))["row"]
    assert row == {"messages": [{"role": "user", "content": "I am <email>, with consent"}]}
