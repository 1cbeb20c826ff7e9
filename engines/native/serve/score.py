"""POST /v1/score and /v1/rerank: how well texts go together. A cross-encoder reads both as one; an embedding model
reads each alone, and the cosine of its vectors is the score. Shapes as vLLM has them, rerank as Jina and Cohere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from engines.native.pooling.config import Task
from engines.native.serve import validate
from engines.native.serve.embeddings import Pooling, ReadBody, check_count
from engines.native.serve.errors import invalid
from engines.native.serve.pooling import PoolingText, Tokens

_TASKS = (Task.EMBED, Task.SCORE)


class ScoreApi:
    def __init__(self, pooling: Pooling, read_body: ReadBody) -> None:
        self._pooling, self._read_body = pooling, read_body

    def routes(self) -> list[web.RouteDef]:
        score = [web.post(path, self._score) for path in ("/v1/score", "/score")]
        return score + [web.post(path, self._rerank) for path in ("/v1/rerank", "/rerank", "/v2/rerank")]

    async def _score(self, request: web.Request) -> web.Response:
        body = await self._read_body(request)
        pooling = self._pooling.texts_of(body, _TASKS)
        first, second = (_texts(body, name) for name in ("text_1", "text_2"))
        if len(first) not in (1, len(second)):
            message = f"text_1 has {len(first)} texts and text_2 {len(second)}; give one in text_1, or as many in both"
            raise invalid("text_1", message)
        texts, scores = await self._scored(request, body, pooling, "text_1", first, "text_2", second)
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores.tolist())]
        return self._pooling.answer("score", texts, {"data": data})

    async def _rerank(self, request: web.Request) -> web.Response:
        body = await self._read_body(request)
        pooling = self._pooling.texts_of(body, _TASKS)
        query = body.get("query")
        if not isinstance(query, str):
            raise invalid("query", "query must be a string", "invalid_type")
        documents = _documents(body.get("documents"))
        top_n = validate.integer(body, "top_n", 0, 0, 2**31) or len(documents)
        shown = validate.boolean(body, "return_documents", True)
        texts, scores = await self._scored(request, body, pooling, "query", [query], "documents", documents)
        best = np.argsort(-scores, kind="stable")[:top_n]  # of equal ones the earlier first
        results: list[dict[str, Any]] = []
        for index in best.tolist():
            result = {"index": index, "relevance_score": float(scores[index])}
            results.append(result | {"document": {"text": documents[index]}} if shown else result)
        return self._pooling.answer("rerank", texts, {"results": results})

    async def _scored(
        self,
        request: web.Request,
        body: validate.Body,
        pooling: PoolingText,
        first_name: str,
        first: Sequence[str],
        second_name: str,
        second: Sequence[str],
    ) -> tuple[list[Tokens], NDArray[np.float32]]:
        """What was computed, and float32 [len(second)]."""
        keep = self._pooling.keep(body, pooling)
        names = [_name(second_name, index, second) for index in range(len(second))]
        for text, name in (*((text, first_name) for text in first), *zip(second, names, strict=True)):
            if not text:
                raise invalid(name, f"{name} is empty; give at least one character", "empty_input")
        if pooling.head.task is Task.SCORE:
            pairs = list(zip(first if len(first) == len(second) else list(first) * len(second), second, strict=True))
            texts = await pooling.encode_pairs(pairs, names, keep, first_name)
            return texts, (await self._pooling.run(request, body, texts))[:, 0]
        first_names = [_name(first_name, index, first) for index in range(len(first))]
        texts = await pooling.encode([*first, *second], [*first_names, *names], keep)
        vectors = await self._pooling.run(request, body, texts)
        return texts, cosines(vectors[: len(first)], vectors[len(first) :])


def cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """[1 or n, width], [n, width] → [n]."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.maximum(lengths, 1e-12), np.float32)


def _name(name: str, index: int, texts: Sequence[str]) -> str:
    return name if len(texts) == 1 else f"{name}[{index}]"


def _texts(body: validate.Body, name: str) -> list[str]:
    value = body.get(name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise invalid(name, f"{name} must be a string or an array of strings", "invalid_type")
    if not texts:
        raise invalid(name, f"{name} is empty; give at least one text", "empty_input")
    check_count(texts, name)
    return texts


def _documents(value: Any) -> list[str]:
    """Strings, or objects with a `text`."""
    if not isinstance(value, list):
        raise invalid("documents", "documents must be an array of strings", "invalid_type")
    if not value:
        raise invalid("documents", "documents is empty; give at least one", "empty_input")
    check_count(value, "documents")
    texts: list[str] = []
    for index, item in enumerate(value):
        text = item.get("text") if isinstance(item, dict) else item
        if not isinstance(text, str):
            name = f"documents[{index}]"
            raise invalid(name, f"{name} must be a string, or an object with a text", "invalid_type")
        texts.append(text)
    return texts
