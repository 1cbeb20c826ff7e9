"""An engine that only speaks: HTTP of the engine contract, made-up tokens at a given pace, failures on demand.

For tests and benchmarks of what stands in front of engines. `python -m evaluation.fake_engine --port 9000`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

WORDS = ("the ", "quick ", "brown ", "fox ", "jumps ", "over ", "a ", "lazy ", "dog ", "and ")


@dataclass
class Behaviour:
    """How answers go. Counts are of content events; times in seconds. A request may set its own `interval`."""

    tokens: int = 20
    first_after: float = 0.0
    interval: float = 0.0
    status: int = 200  # other: this status with an error in OpenAI's shape
    error_at: int | None = None  # an error event instead of this content event; 0: the first event of the stream
    cut_at: int | None = None  # the connection breaks before this content event
    silent_end_at: int | None = None  # a clean end of the body before this content event, without [DONE]
    stall_at: int | None = None  # nothing more from this content event on
    role_first: bool = True  # a chunk with the role alone, before the first token
    prompt_tokens: int = 7
    cached_tokens: int = 3


@dataclass
class FakeEngine:
    """One server. `requests` holds what arrived, `closed_at` when clients went away before their end."""

    token: str = "fake-token"
    name: str = "fake"
    behaviour: Behaviour = field(default_factory=Behaviour)
    requests: list[dict[str, Any]] = field(default_factory=list)
    closed_at: list[float] = field(default_factory=list)
    running: int = 0
    keep_requests: int = 1_000
    _runner: web.AppRunner | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> FakeEngine:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/chat/completions", self._generate)
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/responses", self._responses)
        for path in ("/v1/embeddings", "/v1/score", "/v1/rerank"):
            app.router.add_post(path, self._pool)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ready"})

    async def _read(self, request: web.Request) -> dict[str, Any]:
        body: dict[str, Any] = await request.json()
        if len(self.requests) < self.keep_requests:
            self.requests.append(body | {"_path": request.path, "_headers": dict(request.headers)})
        return body

    def _refuses(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _error(401, "wrong token")
        if self.behaviour.status != 200:
            return _error(self.behaviour.status, f"status {self.behaviour.status} as told")
        return None

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        refusal = self._refuses(request)
        return refusal or web.json_response({"tokens": list(str(body.get("prompt", "")).encode())})

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        refusal = self._refuses(request)
        return refusal or web.json_response({"prompt": bytes(body.get("tokens", [])).decode()})

    async def _pool(self, request: web.Request) -> web.Response:
        """Prompt tokens as told; a rerank tells only the total, as vLLM's does."""
        await self._read(request)
        if (refusal := self._refuses(request)) is not None:
            return refusal
        self.running += 1
        try:
            await asyncio.sleep(self.behaviour.first_after)
        finally:
            self.running -= 1
        total = self.behaviour.prompt_tokens
        if request.path == "/v1/rerank":
            return web.json_response(
                {"results": [{"index": 0, "relevance_score": 0.5}], "usage": {"total_tokens": total}}
            )
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}]
        usage = {"prompt_tokens": total, "total_tokens": total}
        return web.json_response({"object": "list", "data": data, "model": "fake", "usage": usage})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await self._read(request)
        refusal = self._refuses(request)
        if refusal is not None:
            return refusal
        self.running += 1
        try:
            await asyncio.sleep(self.behaviour.first_after)
            if body.get("stream"):
                return await self._stream(request, body)
            return await self._whole(request, body)
        except (asyncio.CancelledError, ConnectionResetError):
            self.closed_at.append(time.perf_counter())
            raise
        finally:
            self.running -= 1

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        """Anthropic's shape."""
        body = await self._read(request)
        if (refusal := self._refuses(request)) is not None:
            return refusal
        tokens, told = self._count(body), self.behaviour
        usage = {"input_tokens": told.prompt_tokens - told.cached_tokens, "cache_read_input_tokens": told.cached_tokens}
        text = [WORDS[index % len(WORDS)] for index in range(tokens)]
        message = {"id": "msg_x", "type": "message", "role": "assistant", "model": "fake"}
        if not body.get("stream"):
            content = [{"type": "text", "text": "".join(text)}]
            end = {"stop_reason": "end_turn", "usage": usage | {"output_tokens": tokens}}
            return web.json_response(message | {"content": content} | end)
        block = {"type": "text", "text": ""}
        opening: list[dict[str, Any]] = [
            {"type": "message_start", "message": message | {"content": [], "usage": usage | {"output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
        ]
        deltas = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in text
        ]
        closing: list[dict[str, Any]] = [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}},
            {"type": "message_stop"},
        ]
        failure = {"type": "error", "error": {"type": "api_error", "message": "KV cache lost"}}
        return await self._named_events(request, opening, deltas, closing, failure)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        """OpenAI's newer shape."""
        body = await self._read(request)
        if (refusal := self._refuses(request)) is not None:
            return refusal
        tokens, told = int(body.get("max_output_tokens") or self.behaviour.tokens), self.behaviour
        usage = {
            "input_tokens": told.prompt_tokens,
            "input_tokens_details": {"cached_tokens": told.cached_tokens},
            "output_tokens": tokens,
        }
        whole = {"id": "resp_x", "object": "response", "status": "completed", "usage": usage}
        if not body.get("stream"):
            return web.json_response(whole)
        begun = {"id": "resp_x", "object": "response", "status": "in_progress", "usage": None}
        opening: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        deltas = [{"type": "response.output_text.delta", "delta": WORDS[index % len(WORDS)]} for index in range(tokens)]
        failure = {"type": "error", "code": "server_error", "message": "KV cache lost"}
        closing: list[dict[str, Any]] = [{"type": "response.completed", "response": whole}]
        return await self._named_events(request, opening, deltas, closing, failure)

    async def _named_events(
        self,
        request: web.Request,
        opening: list[dict[str, Any]],
        deltas: list[dict[str, Any]],
        closing: list[dict[str, Any]],
        failure: dict[str, Any],
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        told = self.behaviour
        for event in opening:
            await response.write(_named(event))
        for index, delta in enumerate(deltas):
            if index == told.error_at:
                await response.write(_named(failure))
                break
            if index == told.cut_at and request.transport is not None:
                request.transport.close()
                raise ConnectionResetError
            if index == told.silent_end_at:
                break
            await response.write(_named(delta))
            if told.interval:
                await asyncio.sleep(told.interval)
        else:
            for event in closing:
                await response.write(_named(event))
        await response.write_eof()
        return response

    def _count(self, body: dict[str, Any]) -> int:
        return int(body.get("max_tokens") or self.behaviour.tokens)

    def _usage(self, tokens: int) -> dict[str, Any]:
        prompt = self.behaviour.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
            "prompt_tokens_details": {"cached_tokens": self.behaviour.cached_tokens},
        }

    async def _whole(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        tokens, told = self._count(body), self.behaviour
        await asyncio.sleep(told.interval * tokens)
        if told.cut_at is not None and request.transport is not None:
            request.transport.close()
        text = "".join(WORDS[index % len(WORDS)] for index in range(tokens))
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        chat = request.path == "/v1/chat/completions"
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        kind = "chat.completion" if chat else "text_completion"
        return web.json_response({"id": "x", "object": kind, "choices": [choice], "usage": self._usage(tokens)})

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        tokens, told = self._count(body), self.behaviour
        interval = float(body.get("interval", told.interval))
        chat = request.path == "/v1/chat/completions"
        if told.role_first and chat and told.error_at != 0:
            await response.write(_event(_chunk({"role": "assistant", "content": ""}, chat)))
        for index in range(tokens):
            if index == told.error_at:
                message = {"message": "KV cache lost", "type": "server_error", "param": None, "code": "engine_failed"}
                await response.write(_event({"error": message}))
                await response.write_eof()
                return response
            if index == told.cut_at and request.transport is not None:
                request.transport.close()
                raise ConnectionResetError
            if index == told.silent_end_at:
                await response.write_eof()
                return response
            if index == told.stall_at:
                await asyncio.sleep(3600)
            await response.write(_event(_chunk({"content": WORDS[index % len(WORDS)]}, chat)))
            if interval:
                await asyncio.sleep(interval)
        await response.write(_event(_chunk({}, chat, "length")))
        if (body.get("stream_options") or {}).get("include_usage"):
            await response.write(_event({"id": "x", "choices": [], "usage": self._usage(tokens)}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _chunk(delta: dict[str, Any], chat: bool, finish: str | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    choice |= {"delta": delta} if chat else {"text": delta.get("content", "")}
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": "chatcmpl-x", "object": kind, "created": 1764400000, "model": "fake", "choices": [choice]}


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


def _named(content: dict[str, Any]) -> bytes:
    return b"event: " + str(content["type"]).encode() + b"\n" + _event(content)


def _error(status: int, message: str) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": "fake"}
    return web.json_response({"error": error}, status=status)


async def _serve(arguments: argparse.Namespace) -> None:
    behaviour = Behaviour(tokens=arguments.tokens, interval=arguments.interval)
    engine = FakeEngine(token=arguments.token, behaviour=behaviour, keep_requests=0)
    await engine.start(arguments.port)
    print(engine.port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one; it is printed")
    parser.add_argument("--token", default="fake-token", help="bearer token asked for")
    parser.add_argument("--tokens", type=int, default=20, help="content events of an answer")
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between two of them")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
