"""POST /v1/embeddings, and what the endpoints of pooling models share."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from aiohttp import web
from numpy.typing import NDArray

from engines.native.pooling.config import Task
from engines.native.serve import fields, validate
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError, invalid, unsupported
from engines.native.serve.ids import new_id
from engines.native.serve.model import ServedModel
from engines.native.serve.pooling import PoolingEngine, PoolingText, Tokens

MAX_TEXTS = 2048
"""Of one request; OpenAI's own limit."""
ReadBody = Callable[[web.Request], Awaitable[validate.Body]]
_UNUSUAL: dict[str, tuple[Any, ...]] = {"add_special_tokens": (True,), "messages": (), "normalize": (), "softmax": ()}
"""Fields that would change the numbers, with the values that ask for nothing beyond what there is."""


class Pooling:
    """What a request of any of these endpoints needs: the model's texts, the engine, and answers as JSON."""

    def __init__(self, engine: Engine, model: ServedModel) -> None:
        self._engine, self._model = engine, model

    def texts_of(self, body: validate.Body, tasks: Sequence[Task]) -> PoolingText:
        """For a request of this model that does what the endpoint is for. Raises ApiError: 503, 404, or 400 that names
        the right endpoint."""
        max_tokens = self._engine.require_ready().max_len
        self._model.require_name(body.get("model"))
        pooling = self._model.pooling
        if pooling is None or pooling.head.task not in tasks:
            raise wrong_task(self._model)
        for name, neutral in _UNUSUAL.items():
            if body.get(name) is not None and body[name] not in neutral:
                raise unsupported(name, f"{name} is not supported by this engine")
        return replace(pooling, max_tokens=max_tokens)

    def keep(self, body: validate.Body, pooling: PoolingText) -> int:
        """truncate_prompt_tokens: tokens of each text that stay; −1 = as many as the model takes; 0 = not given."""
        keep = validate.integer(body, "truncate_prompt_tokens", 0, -1, pooling.max_tokens)
        if keep == 0 and body.get("truncate_prompt_tokens") is not None:
            raise invalid("truncate_prompt_tokens", "truncate_prompt_tokens is 0; give 1 or more, or -1 for the most")
        return pooling.max_tokens if keep == -1 else keep

    async def run(self, request: web.Request, body: validate.Body, texts: Sequence[Tokens]) -> NDArray[np.float32]:
        """float32 [len(texts), width]. A time-out for the first token means nothing here."""
        assert isinstance(self._engine, PoolingEngine)
        return await self._engine.pool(
            texts,
            priority=validate.integer(body, "priority", 0, -validate.MAX_PRIORITY, validate.MAX_PRIORITY),
            timeouts=fields.timeouts(body),
            tenant=fields.tenant(request.headers),
        )

    def answer(self, kind: str, texts: Sequence[Tokens], content: dict[str, Any]) -> web.Response:
        tokens = sum(len(text.ids) for text in texts)
        body = {
            "id": new_id(kind),
            "object": "list",
            "created": int(time.time()),
            "model": self._model.name,
            **content,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return web.Response(body=orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), content_type="application/json")


_WORK = {
    Task.GENERATE: ("generates text", "/v1/chat/completions or /v1/completions"),
    Task.EMBED: ("makes embeddings", "/v1/embeddings, /v1/score or /v1/rerank"),
    Task.SCORE: ("scores pairs of texts", "/v1/score or /v1/rerank"),
}


def wrong_task(model: ServedModel) -> ApiError:
    does, ask = _WORK[model.task]
    return invalid("model", f"the model {model.name} {does}; ask {ask}", "wrong_task")


class EmbeddingApi:
    def __init__(self, pooling: Pooling, read_body: ReadBody) -> None:
        self._pooling, self._read_body = pooling, read_body

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/embeddings", self._embeddings)]

    async def _embeddings(self, request: web.Request) -> web.Response:
        body = await self._read_body(request)
        pooling = self._pooling.texts_of(body, (Task.EMBED,))
        written = _encoding(body)
        dimensions = _dimensions(body, pooling)
        texts = await _read_input(body.get("input"), pooling, self._pooling.keep(body, pooling))
        vectors = await self._pooling.run(request, body, texts)
        if dimensions:
            vectors = shortened(vectors, dimensions, pooling.head.normalize)
        written_out = [written(vector) for vector in vectors]
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(written_out)]
        return self._pooling.answer("embd", texts, {"data": data})


def shortened(vectors: NDArray[np.float32], dimensions: int, normalize: bool) -> NDArray[np.float32]:
    """[n, width] → [n, dimensions], of length 1 again where they were."""
    cut = vectors[:, :dimensions].copy()
    if normalize:
        cut /= np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12)
    return cut


def _encoding(body: validate.Body) -> Callable[[NDArray[np.float32]], Any]:
    asked = validate.string(body, "encoding_format", "float")
    if asked == "float":
        return lambda vector: vector
    if asked == "base64":
        return lambda vector: base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode()
    raise invalid("encoding_format", f"encoding_format is {asked[:40]!r}; it can be float or base64")


def _dimensions(body: validate.Body, pooling: PoolingText) -> int:
    """0 where all of a vector is wanted. Only a model that was trained for it has vectors that may be cut."""
    asked = validate.integer(body, "dimensions", 0, 1, pooling.width)
    head = pooling.head
    if not asked or asked == pooling.width:
        return 0
    if not head.matryoshka:
        raise unsupported(
            "dimensions", f"dimensions is {asked}; this model's vectors have {pooling.width} numbers and can't be cut"
        )
    if head.dimensions and asked not in head.dimensions:
        allowed = ", ".join(map(str, head.dimensions))
        raise invalid("dimensions", f"dimensions is {asked}; the model was trained for {allowed}")
    return asked


async def _read_input(value: Any, pooling: PoolingText, keep: int) -> list[Tokens]:
    """A string, an array of strings, an array of token ids, or an array of arrays of token ids."""
    kinds = "a string, an array of strings, an array of token ids, or an array of arrays of token ids"
    if isinstance(value, str):
        return await pooling.encode([value], ["input"], keep)
    if not isinstance(value, list):
        raise invalid("input", f"input must be {kinds}", "invalid_type")
    if not value:
        raise invalid("input", "input is empty; give at least one text", "empty_input")
    if all(type(item) is int for item in value):
        return [pooling.checked_ids(validate.token_ids(value, "input", pooling.vocab_size), "input", keep)]
    check_count(value, "input")
    names = [f"input[{index}]" for index in range(len(value))]
    if all(isinstance(item, str) for item in value):
        return await pooling.encode(value, names, keep)
    if all(isinstance(item, list) for item in value):
        return [
            pooling.checked_ids(validate.token_ids(item, name, pooling.vocab_size), name, keep)
            for item, name in zip(value, names, strict=True)
        ]
    raise invalid("input", f"input must be {kinds}, all of one kind", "invalid_type")


def check_count(values: Sequence[Any], name: str) -> None:
    if len(values) > MAX_TEXTS:
        raise invalid(name, f"{name} has {len(values)} texts; at most {MAX_TEXTS} are allowed")
