"""What an instance can do, as /v1/models tells it: read off the routes and the model, never claimed."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from engines.native.serve.model import ServedModel

_CHAT = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
"""Endpoints that need a chat template."""


def capabilities(model: ServedModel, router: web.UrlDispatcher) -> dict[str, Any]:
    """endpoints: the paths that answer for this model; tools: its calls are parsed; reasoning: it is kept apart."""
    paths = {route.resource.canonical for route in router.routes() if route.method == "POST" and route.resource}
    chat = model.template is not None
    return {
        "endpoints": sorted(path for path in paths if chat or path not in _CHAT),
        "chat": chat,
        "tools": chat and model.tool_parser is not None,
        "reasoning": chat and model.reasoning is not None,
    }
