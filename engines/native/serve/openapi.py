"""GET /openapi.json: the API of this instance, machine-readable (OpenAPI 3.1), as vLLM's server has it.

Made for the model that is served: its name, its vocabulary, and the endpoints that answer for it. Fields are in
openapi_fields.py, their meaning in docs/api.md. `python -m evaluation.quality.fuzz` asks what is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engines.native.pooling.config import Task
from engines.native.serve import openapi_fields as asked
from engines.native.serve.model import ServedModel
from engines.native.serve.openapi_fields import INT64, STRING, Schema, array, either, integer, nullable, one_of, record

VERSION = "1"
_COUNT = integer(0)
_MODEL = record(
    {
        "id": STRING, "object": one_of("model"), "created": _COUNT, "owned_by": STRING,
        "max_model_len": nullable(_COUNT), "context_length": nullable(_COUNT), "capabilities": asked.OBJECT,
    }
)  # fmt: skip
_ERROR = record(
    {"error": record({"message": STRING, "type": STRING, "param": nullable(STRING), "code": nullable(STRING)})}
)
_ANTHROPIC_ERROR = record({"type": one_of("error"), "error": record({"type": STRING, "message": STRING})})
_EVENT: Schema = {"type": "object", "properties": {"event": STRING, "data": STRING}, "required": ["data"]}
"""Of a stream: data is JSON, or [DONE]."""
_USAGE = record({"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT})
_POOLED_USAGE = record({"prompt_tokens": _COUNT, "total_tokens": _COUNT})
_REASON = one_of("stop", "length", "timeout", "repetition", "tool_calls")


def _list(item: Schema) -> Schema:
    return array(item, INT64)


def _answer(kind: str, choice: dict[str, Schema]) -> Schema:
    one = record({"index": _COUNT, "finish_reason": _REASON, **choice})
    head = {"id": STRING, "object": one_of(kind), "created": _COUNT, "model": STRING}
    return record({**head, "choices": _list(one), "usage": _USAGE})


_COMPLETION = _answer("text_completion", {"text": STRING})
_CHAT = _answer("chat.completion", {"message": record({"role": one_of("assistant")}, {"content": STRING})})
_RESPONSE = record(
    {
        "id": STRING, "object": one_of("response"), "status": one_of("completed", "incomplete"),
        "output": _list(record({"type": one_of("message", "reasoning", "function_call"), "status": STRING})),
        "usage": record({"input_tokens": _COUNT, "output_tokens": _COUNT, "total_tokens": _COUNT}),
    }
)  # fmt: skip
_STOPS = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded")
_MESSAGE = record(
    {
        "id": STRING, "type": one_of("message"), "role": one_of("assistant"), "model": STRING,
        "content": _list(record({"type": one_of("text", "thinking", "tool_use")})), "stop_reason": one_of(*_STOPS),
        "usage": record({"input_tokens": _COUNT, "output_tokens": _COUNT}),
    }
)  # fmt: skip
_TOKENS = record({"count": _COUNT, "max_model_len": _COUNT, "tokens": _list(_COUNT)}, {"token_strs": _list(STRING)})
_VECTOR = either(STRING, _list({"type": "number"}))


def _pooled(name: str, item: Schema) -> Schema:
    return record({"object": one_of("list"), "model": STRING, name: _list(item), "usage": _POOLED_USAGE})


_EMBEDDINGS = _pooled("data", record({"object": one_of("embedding"), "index": _COUNT, "embedding": _VECTOR}))
_SCORES = _pooled("data", record({"object": one_of("score"), "index": _COUNT, "score": {"type": "number"}}))
_RANKS = _pooled("results", record({"index": _COUNT, "relevance_score": {"type": "number"}}))

_REFUSALS = {
    "400": "the request is at fault; param names the field",
    "401": "the token is missing or wrong",
    "404": "this instance serves another model",
    "413": "the body is too large",
    "429": "this team has its share of the queue; Retry-After",
    "500": "the request was lost",
    "503": "not ready, draining, or the queue is full; Retry-After",
    "504": "the request's time-out passed",
}


def document(model: ServedModel, paths: set[str]) -> Schema:
    """`paths`: those that the application routes."""
    described = {path: {method: one} for path, (method, one) in _operations(model).items() if path in paths}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Tursiops native engine: {model.name}",
            "version": VERSION,
            "description": "What each field means: docs/api.md. Fields that are not listed are ignored, or refused "
            "where ignoring them would change the answer.",
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": described,
    }


def _operations(model: ServedModel) -> dict[str, tuple[str, Schema]]:
    named, vocab = {"model": one_of(model.name)}, model.vocab_size

    def post(fields: asked.Fields, answer: Schema, **options: Any) -> tuple[str, Schema]:
        needed, optional = fields
        return "post", _post(record({**named, **needed}, optional), answer, **options)

    def loose(fields: asked.Fields, answer: Schema, **terms: Any) -> tuple[str, Schema]:
        """The model need not be named."""
        return "post", _post({**record(fields[0], {**named, **fields[1]}), **terms}, answer)

    found: dict[str, tuple[str, Schema]] = {
        "/health": ("get", {**_get(record({"status": STRING}), "503"), "security": []}),
        "/metrics": ("get", {"responses": {"200": _content(STRING, "text/plain"), **_refusals("401")}}),
        "/openapi.json": ("get", _get(asked.OBJECT)),
        "/v1/models": ("get", _get(record({"object": one_of("list"), "data": _list(_MODEL)}))),
        "/v1/models/{name}": ("get", {**_get(_MODEL, "404"), "parameters": [_NAME]}),
        "/tokenizer_info": ("get", _get(asked.OBJECT, "503")),
        "/tokenize": loose(asked.tokenizing(), _TOKENS, anyOf=[{"required": ["prompt"]}, {"required": ["messages"]}]),
        "/detokenize": loose(asked.detokenizing(vocab), record({"prompt": STRING})),
    }
    generating: dict[str, Callable[[], tuple[str, Schema]]] = {
        "/v1/completions": lambda: post(asked.completion(vocab), _COMPLETION, stream=True),
        "/v1/chat/completions": lambda: post(asked.chat(vocab), _CHAT, stream=True),
        "/v1/responses": lambda: post(asked.response(vocab), _RESPONSE, stream=True),
        "/v1/messages": lambda: post(asked.message(vocab), _MESSAGE, stream=True, error=_ANTHROPIC_ERROR),
        "/v1/messages/count_tokens": lambda: post(
            asked.counting(), record({"input_tokens": _COUNT}), error=_ANTHROPIC_ERROR
        ),
    }
    pooling: dict[str, Callable[[], tuple[str, Schema]]] = {
        "/v1/embeddings": lambda: post(asked.embedding(vocab), _EMBEDDINGS),
        **dict.fromkeys(("/v1/score", "/score"), lambda: post(asked.scoring(), _SCORES)),
        **dict.fromkeys(("/v1/rerank", "/rerank", "/v2/rerank"), lambda: post(asked.reranking(), _RANKS)),
    }
    tasks = pooling if model.task is not Task.GENERATE else generating
    if model.task is Task.SCORE:
        del tasks["/v1/embeddings"]
    if model.template is None and model.task is Task.GENERATE:
        tasks = {"/v1/completions": generating["/v1/completions"]}
    return found | {path: make() for path, make in tasks.items()}


_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _get(answer: Schema, *refusals: str) -> Schema:
    return {"responses": {"200": _content(answer), **_refusals("401", *refusals)}}


def _post(body: Schema, answer: Schema, *, stream: bool = False, error: Schema = _ERROR) -> Schema:
    good = _content(answer)
    if stream:
        good["content"]["text/event-stream"] = {"schema": _EVENT}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": good, **_refusals(*_REFUSALS, error=error)},
    }


def _refusals(*statuses: str, error: Schema = _ERROR) -> Schema:
    return {status: {**_content(error), "description": _REFUSALS[status]} for status in statuses}


def _content(schema: Schema, kind: str = "application/json") -> Schema:
    return {"description": "the answer", "content": {kind: {"schema": schema}}}
