"""A /v1 request as the gateway needs to see it. The engine checks the rest, field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tursiops.gateway.dialects import ANTHROPIC, OPENAI, RESPONSES, Dialect
from tursiops.gateway.errors import bad_request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path of ours, the engine's path behind it, whether tokens are generated there, whether its tokens are billed
    (a prompt's alone, where none are generated), and how it is spoken."""

    path: str
    upstream: str
    generates: bool = True
    billed: bool = True
    chat: bool = False  # a stream's first event says the role alone
    dialect: Dialect = OPENAI


ENDPOINTS = {
    endpoint.path: endpoint
    for endpoint in (
        Endpoint("/v1/chat/completions", "/v1/chat/completions", chat=True),
        Endpoint("/v1/completions", "/v1/completions"),
        Endpoint("/v1/responses", "/v1/responses", dialect=RESPONSES),
        Endpoint("/v1/messages", "/v1/messages", dialect=ANTHROPIC),
        Endpoint(
            "/v1/messages/count_tokens", "/v1/messages/count_tokens", generates=False, billed=False, dialect=ANTHROPIC
        ),
        Endpoint("/v1/embeddings", "/v1/embeddings", generates=False),
        Endpoint("/v1/score", "/v1/score", generates=False),
        Endpoint("/v1/rerank", "/v1/rerank", generates=False),
        Endpoint("/v1/tokenize", "/tokenize", generates=False, billed=False),
        Endpoint("/v1/detokenize", "/detokenize", generates=False, billed=False),
    )
}


@dataclass(frozen=True, slots=True)
class Request:
    endpoint: Endpoint
    model: str
    stream: bool
    wants_usage: bool  # the client asked for the usage chunk, so it stays in the stream
    body: bytes  # what the engine gets
    prompt_bytes: int  # size of what the client sent; tokens are estimated from it
    max_tokens: int | None  # tokens asked for, over all choices
    choices: int = 1  # answers asked for


def parse(body: bytes, endpoint: Endpoint) -> Request:
    """Raises GatewayError (400) naming the field."""
    fields = _object(body)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request("`model` must be the name of a deployed model, as a string.", "model", "invalid_type")
    stream = fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise bad_request("`stream` must be true or false.", "stream", "invalid_type")
    streams = bool(stream) and endpoint.generates
    wants_usage = False
    if streams and endpoint.dialect.asks_for_usage:
        options = fields.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise bad_request("`stream_options` must be an object.", "stream_options", "invalid_type")
        wants_usage = bool((options or {}).get("include_usage"))
        if not wants_usage:
            body = _written(fields | {"stream_options": {**(options or {}), "include_usage": True}})
    return Request(
        endpoint=endpoint,
        model=model,
        stream=streams,
        wants_usage=wants_usage,
        body=body,
        prompt_bytes=len(body),
        max_tokens=_asked(fields) if endpoint.generates else 0,
        choices=_choices(fields),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise bad_request("The request body must be a JSON object.", code="invalid_json")
    return fields


def _written(fields: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError:  # what can be read can be written, but for depth: 1024 levels against 254
        raise bad_request("The request body is nested too deeply.", code="invalid_json") from None


def _asked(fields: dict[str, Any]) -> int | None:
    """Tokens that the request may generate. Odd values count as none: the engine refuses them by name."""
    names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    limit = next((fields[name] for name in names if fields.get(name) is not None), None)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        return None
    return limit * _choices(fields)


def _choices(fields: dict[str, Any]) -> int:
    choices = fields.get("n")
    return choices if isinstance(choices, int) and 1 <= choices <= 128 else 1
