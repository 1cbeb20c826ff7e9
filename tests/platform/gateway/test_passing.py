"""What is not /v1 reaches the web process over its unix socket, and comes back as it was."""

import asyncio
import json

import aiohttp
import pytest
import uvicorn
from tursiops.gateway.passing import forwarded

from tests.gateway_bench import instance, route, until
from tests.prompt_server import PromptServer


class Web:
    """A web process that tells what it got, over plain ASGI."""

    def __init__(self, path):
        config = uvicorn.Config(self, uds=path, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
        self.server = PromptServer(config)
        self.left = asyncio.Event()

    async def start(self):
        self.task = asyncio.create_task(self.server.serve())
        await until(lambda: self.server.started)
        return self

    async def stop(self):
        self.server.force_exit = True
        self.server.end()
        await self.task

    async def __call__(self, scope, receive, send):
        if scope["type"] == "websocket":
            await self.websocket(scope, receive, send)
            return
        if scope["path"] == "/endless":
            await self.endless(receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        told = {
            "method": scope["method"],
            "path": scope["raw_path"].decode(),
            "query": scope["query_string"].decode(),
            "headers": [[name.decode(), value.decode()] for name, value in scope["headers"]],
            "body": len(body),
        }
        answer = json.dumps(told).encode()
        headers = [(b"content-type", b"application/json"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        headers += [(b"connection", b"close, X-Hop"), (b"x-hop", b"1")]
        if scope["path"] == "/sized":
            headers.append((b"content-length", str(len(answer)).encode()))
        await send({"type": "http.response.start", "status": 207, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def endless(self, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        gone = asyncio.create_task(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"tick\n", "more_body": True})
            await asyncio.sleep(0.05)
        self.left.set()

    async def websocket(self, scope, receive, send):
        await receive()
        if scope["path"] == "/ws/forbidden":
            await send({"type": "websocket.close", "code": 4403})
            return
        await send({"type": "websocket.accept", "subprotocol": next(iter(scope["subprotocols"]), None)})
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.left.set()
                return
            if message.get("text") == "close":
                await send({"type": "websocket.close", "code": 4408})
                return
            await send({"type": "websocket.send", **{k: message[k] for k in ("text", "bytes") if message.get(k)}})


@pytest.fixture
async def web(bench, config):
    made = await Web(config.web_socket).start()
    yield made
    await made.stop()


async def test_method_path_query_headers_and_body_arrive_as_sent(bench, web):
    url = bench.url + "/api/v1/a%2Fb//c?x=%20&y=é"
    headers = {
        "Cookie": "sessionid=s",
        "X-Forwarded-For": "6.6.6.6",
        "X-Custom": "1",
        "Connection": "keep-alive, X-Hop",
    }
    async with bench.session.put(url, data=b"z" * 300_000, headers=headers | {"X-Hop": "1"}) as response:
        told = await response.json(content_type=None)
        cookies = response.headers.getall("Set-Cookie")
    assert (response.status, cookies) == (207, ["a=1", "b=2"])
    assert (told["method"], told["path"], told["body"]) == ("PUT", "/api/v1/a%2Fb//c", 300_000)
    assert told["query"] == "x=%20&y=%C3%A9"
    seen = dict(told["headers"])
    assert (seen["cookie"], seen["x-custom"]) == ("sessionid=s", "1")
    assert seen["x-forwarded-for"] == "6.6.6.6"  # this peer is on our host, as a TLS proxy would be
    assert (seen["x-forwarded-proto"], seen["x-forwarded-host"]) == ("http", seen["host"])
    assert seen["host"] == bench.url.removeprefix("http://")
    assert "x-hop" not in seen


def test_what_a_client_claims_to_be_is_not_believed():
    claimed = [(b"x-forwarded-for", b"6.6.6.6"), (b"forwarded", b"for=6.6.6.6"), (b"x-forwarded-proto", b"https")]
    scope = {"headers": [*claimed, (b"host", b"h")], "client": ("10.0.0.9", 1), "scheme": "ws"}
    told = dict(forwarded(scope))
    assert told == {
        "host": "h",
        "X-Forwarded-For": "10.0.0.9",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "h",
    }


async def test_chunked_upload_without_a_length(bench, web):
    async def parts():
        for _ in range(10):
            yield b"x" * 1000

    async with bench.session.post(bench.url + "/upload", data=parts()) as response:
        assert (await response.json())["body"] == 10_000


async def test_streamed_answer_arrives_at_once_and_leaving_reaches_web(bench, web):
    response = await bench.session.get(bench.url + "/endless")
    assert await asyncio.wait_for(response.content.readline(), 2) == b"tick\n"
    response.close()
    await asyncio.wait_for(web.left.wait(), 2)


async def test_websocket_both_ways(bench, web):
    async with bench.session.ws_connect(bench.url + "/ws/chat", protocols=["one"]) as socket:
        assert socket.protocol == "one"
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        await socket.send_bytes(b"\x00\x01")
        assert await socket.receive_bytes() == b"\x00\x01"
        await socket.send_str("close")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 4408
    async with bench.session.ws_connect(bench.url + "/ws/chat") as socket:
        await socket.close()
    await asyncio.wait_for(web.left.wait(), 2)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await bench.session.ws_connect(bench.url + "/ws/forbidden")
    assert refused.value.status == 403


_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def raw_headers(bench, method, path, body=b"", **more):
    """Status and header names of an answer as they lie on the wire, in lower case."""
    host, _, port = bench.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = {"Host": host, "Authorization": f"Bearer {bench.key}", "Content-Length": str(len(body)), **more}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    writer.close()
    first, *rest = head.decode().strip().split("\r\n")
    return int(first.split()[1]), [line.partition(":")[0].lower() for line in rest]


async def test_each_header_of_the_connection_and_server_comes_once(bench, web, engines):
    """Web says its own date and server; what is for one hop alone goes no further."""
    await bench.publish(route("m", instance(engines[0], "a")))
    ask = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    streamed = json.dumps({**json.loads(ask), "stream": True}).encode()
    answers = {
        "passed on, sized": await raw_headers(bench, "GET", "/sized"),
        "passed on, chunked": await raw_headers(bench, "POST", "/upload", b"x" * 10),
        "passed on, no body": await raw_headers(bench, "HEAD", "/sized"),
        "passed on, endless": await raw_headers(bench, "GET", "/endless"),
        "own": await raw_headers(bench, "GET", "/healthz"),
        "models": await raw_headers(bench, "GET", "/v1/models"),
        "completion": await raw_headers(bench, "POST", "/v1/chat/completions", ask),
        "stream": await raw_headers(bench, "POST", "/v1/chat/completions", streamed),
        "refused": await raw_headers(bench, "POST", "/v1/chat/completions", b"{"),
        "socket": await raw_headers(bench, "GET", "/ws/chat", **_UPGRADE),
        "no socket": await raw_headers(bench, "GET", "/ws/forbidden", **_UPGRADE),
    }
    await web.stop()
    answers["web away"] = await raw_headers(bench, "GET", "/sized")
    statuses = {name: status for name, (status, _) in answers.items()}
    assert list(statuses.values()) == [207, 207, 207, 200, 200, 200, 200, 200, 400, 101, 403, 502], statuses
    for name, (_, names) in answers.items():
        once = [field for field in names if field != "set-cookie"]
        assert len(once) == len(set(once)), (name, names)
        assert "x-hop" not in names, name
        assert "server" not in names, name
        assert not {"content-length", "transfer-encoding"} <= set(names), name
        if "socket" not in name:
            assert "date" in names, name


async def test_killed_web_leaves_v1_alive_and_is_said_to_restart(bench, web, engines, config):
    await bench.publish(route("m", instance(engines[0], "a")))
    socket = await bench.session.ws_connect(bench.url + "/ws/live")
    await web.stop()
    message = await asyncio.wait_for(socket.receive(), 5)
    assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)
    assert (await bench.stream())[0].status == 200
    async with bench.session.get(bench.url + "/api/v1/nodes") as response:
        assert (response.status, response.headers["Retry-After"]) == (502, "2")
        error = (await response.json())["error"]
    assert error["code"] == "web_restarting"
    assert error["hint"]
    async with bench.session.get(bench.url + "/", headers={"Accept": "text/html"}) as response:
        assert response.status == 502
        assert "restarting" in await response.text()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await bench.session.ws_connect(bench.url + "/ws/live")
    assert refused.value.status == 502
    again = await Web(config.web_socket).start()
    async with bench.session.get(bench.url + "/back") as response:
        assert response.status == 207
    await again.stop()
