"""The HTTP application: routes, the token, the error shape.

aiohttp.web and not ASGI on uvicorn: both cost 15 µs of CPU per streamed chunk here (measured), and aiohttp cancels a
handler when its client leaves and takes a socket that is bound already.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import orjson
from aiohttp import web

from engines.api import Phase
from engines.native.serve import fields, messages, openapi, tokens, validate
from engines.native.serve.beams import generator_for
from engines.native.serve.capabilities import capabilities
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.debug import DebugApi
from engines.native.serve.embeddings import EmbeddingApi, Pooling, wrong_task
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError, invalid
from engines.native.serve.generate import Delta, Generation, Generator, Usage
from engines.native.serve.message_events import MessageEvents
from engines.native.serve.model import ServedModel
from engines.native.serve.openai import ChunkEvents
from engines.native.serve.response_events import ResponseEvents
from engines.native.serve.responses import ResponsesEndpoint
from engines.native.serve.score import ScoreApi
from engines.native.serve.sse import Events, EventStream, SlowReaders

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint(Protocol):
    """One request of one endpoint: what it asks for, and how its answers are written."""

    async def generation(self) -> Generation: ...

    def whole(self, answers: list[Delta], usage: Usage, generator: Generator) -> dict[str, Any]: ...


E = TypeVar("E", bound=Endpoint)


class Api:
    """Handlers of one instance. Lives as long as the process."""

    def __init__(self, engine: Engine, model: ServedModel, token: str, *, max_body_bytes: int) -> None:
        self._engine, self._model = engine, model
        self._authorization = f"Bearer {token}".encode()
        self.slow_readers = SlowReaders()
        self.app = web.Application(middlewares=[self._guard], client_max_size=max_body_bytes)
        self.app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/openapi.json", self._openapi),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{name:.+}", self._model_named),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/responses", self._responses),
                web.post("/v1/messages", self._messages),
                web.post("/v1/messages/count_tokens", self._count_tokens),
                web.post("/tokenize", self._tokenize),
                web.post("/detokenize", self._detokenize),
                web.get("/tokenizer_info", self._tokenizer_info),
            ]
        )
        pooling = Pooling(engine, model)
        debug = DebugApi(engine, model, self._body)
        for api in (EmbeddingApi(pooling, self._body), ScoreApi(pooling, self._body), debug):
            self.app.add_routes(api.routes())

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every answer that is no success has its API's shape, and none leaves without the token."""
        shape = messages.error_body if request.path.startswith("/v1/messages") else ApiError.body
        try:
            if request.path != "/health":
                self._authenticate(request)
            return await handler(request)
        except ApiError as error:
            return _error_response(error, shape)
        except web.HTTPRequestEntityTooLarge as error:
            message = f"the body is larger than {request.client_max_size} bytes"
            return _error_response(ApiError(error.status, message, code="body_too_large"), shape)
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}"
            code = "not_found" if error.status == 404 else None
            response = _error_response(ApiError(error.status, message, code=code), shape)
            if isinstance(error, web.HTTPMethodNotAllowed):
                response.headers["Allow"] = error.headers["Allow"]  # RFC 9110 §15.5.6
            return response
        except ConnectionError:  # the client left while we wrote to it; its requests have been ended on the way here
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            message = "the engine failed to answer; its log says why"
            return _error_response(ApiError(500, message, code="internal"), shape)

    def _authenticate(self, request: web.Request) -> None:
        """The bearer token, or the same as `x-api-key`, as Anthropic's clients send it."""
        headers = request.headers
        given = headers.get("Authorization") or f"Bearer {headers.get('x-api-key', '')}"
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._authorization):
            raise ApiError(401, "the bearer token is missing or wrong", code="invalid_api_key")

    async def _body(self, request: web.Request) -> validate.Body:
        raw = await request.read()
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise invalid(None, f"the body is no valid JSON: {error}", "invalid_json") from error
        if not isinstance(body, dict):
            raise invalid(None, "the body must be a JSON object", "invalid_json")
        try:
            orjson.dumps(body)  # what is read can be nested deeper than anything can be written
        except TypeError as error:
            raise invalid(None, "the body is nested too deeply", "invalid_json") from error
        return body

    # What the instance says of itself

    async def _health(self, _: web.Request) -> web.Response:
        status = self._engine.status
        body = {"status": status.phase, "progress": status.progress, "reason": status.reason}
        if status.phase is Phase.READY:
            return _json({"status": status.phase})
        return _json(body, status=503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._engine.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _openapi(self, _: web.Request) -> web.Response:
        resources = (route.resource for route in self.app.router.routes())
        paths = {resource.canonical for resource in resources if resource is not None}
        return _json(openapi.document(self._model, paths))

    async def _models(self, _: web.Request) -> web.Response:
        return _json({"object": "list", "data": [self._model_body()]})

    async def _model_named(self, request: web.Request) -> web.Response:
        self._model.require_name(request.match_info["name"])
        return _json(self._model_body())

    def _model_body(self) -> dict[str, Any]:
        ready = self._engine.ready
        return {
            "id": self._model.name,
            "object": "model",
            "created": self._model.created,
            "owned_by": "tursiops",
            "max_model_len": ready.max_len if ready else None,
            "context_length": ready.max_len if ready else None,
            "capabilities": capabilities(self._model, self.app.router),
        }

    # Generation

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, CompletionEndpoint, ChunkEvents)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, ChatEndpoint, ChunkEvents)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, ResponsesEndpoint, ResponseEvents)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, messages.MessagesEndpoint, MessageEvents)

    async def _generate(
        self,
        request: web.Request,
        make: Callable[[ServedModel, validate.Body, int], E],
        make_events: Callable[[validate.Body, E, Generator], Events],
    ) -> web.StreamResponse:
        body = await self._body(request)
        max_len = self._engine.require_ready().max_len
        self._model.require_name(body.get("model"))
        if self._model.pooling is not None:
            raise wrong_task(self._model)
        stream = validate.boolean(body, "stream")
        endpoint = make(self._model, body, max_len)
        asked = fields.scheduled(await endpoint.generation(), body, request.headers)
        generator = generator_for(asked)(self._engine, self._model.detokenizer, asked)
        events = make_events(body, endpoint, generator)
        if stream:
            return await self._stream(request, generator, events)
        answers, usage = await generator.collect()
        return _json(endpoint.whole(answers, usage, generator))

    async def _stream(self, request: web.Request, generator: Generator, events: Events) -> web.StreamResponse:
        stream = EventStream(request, self.slow_readers, named=events.named)
        try:
            async with aclosing(generator.deltas()) as deltas:
                async for delta in deltas:
                    if said := events.of(delta):
                        await stream.send(*said)
            if ended := events.last():
                await stream.send(*ended)
            return await stream.done(events.tail)
        except ApiError as error:
            if stream.response is None:
                raise
            return await stream.fail(events.error(error))

    # Tokens

    async def _tokenize(self, request: web.Request) -> web.Response:
        max_len = self._engine.require_ready().max_len
        return _json(await tokens.tokenize(self._model, await self._body(request), max_len))

    async def _detokenize(self, request: web.Request) -> web.Response:
        return _json(tokens.detokenize(self._model, await self._body(request)))

    async def _tokenizer_info(self, _: web.Request) -> web.Response:
        return _json(tokens.tokenizer_info(self._model, self._engine.require_ready().max_len))

    async def _count_tokens(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        self._model.require_name(body.get("model"))
        return _json(await messages.count_tokens(self._model, body))


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _error_response(error: ApiError, shape: Callable[[ApiError], dict[str, Any]]) -> web.Response:
    response = _json(shape(error), error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
