"""What an instance can do, as /v1/models tells it: read off the routes and the model, never claimed."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from engines.native.pooling.config import Task
from engines.native.serve.model import ServedModel
from engines.native.serve.structured import FORMATS, KINDS

_CHAT = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
"""Endpoints that need a chat template."""
_POOLING = {"/v1/embeddings": (Task.EMBED,)} | dict.fromkeys(
    ("/v1/score", "/score", "/v1/rerank", "/rerank", "/v2/rerank"), (Task.EMBED, Task.SCORE)
)
"""Endpoints of models that give numbers and no text, with the tasks that they serve."""


def capabilities(model: ServedModel, router: web.UrlDispatcher) -> dict[str, Any]:
    """task: generate, embed or score; endpoints: the paths that answer for this model; tools: its calls are parsed;
    reasoning: it is kept apart; structured_output: forms that an answer can be held to."""
    paths = {route.resource.canonical for route in router.routes() if route.method == "POST" and route.resource}
    generates = model.task is Task.GENERATE
    chat = model.template is not None and generates
    return {
        "task": model.task,
        "endpoints": sorted(path for path in paths if _answers(path, model.task, chat)),
        "chat": chat,
        "tools": chat and model.tool_parser is not None,
        "reasoning": chat and model.reasoning is not None,
        "structured_output": [*FORMATS[1:], *KINDS[1:]] if generates else [],
        "embeddings": model.task is Task.EMBED,
    }


def _answers(path: str, task: Task, chat: bool) -> bool:
    if path in _POOLING:
        return task in _POOLING[path]
    if path.startswith("/v1/"):
        return task is Task.GENERATE and (chat or path not in _CHAT)
    return True
