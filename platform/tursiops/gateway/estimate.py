"""Tokens of a request before it runs, for the reservation; and of an answer that broke off, for the bill."""

from __future__ import annotations

from collections import OrderedDict

from tursiops.gateway.request import Request
from tursiops.gateway.snapshot import RouteEntry

FIRST_GUESS = 4.0  # bytes of request body per prompt token, before anything was measured
DEFAULT_ANSWER = 256  # tokens, where the request sets no limit
_DEPLOYMENTS = 1_000


class Estimator:
    """Learns each deployment's bytes per token from the usage of answers that came to their end."""

    def __init__(self) -> None:
        self._bytes_per_token: OrderedDict[str, float] = OrderedDict()

    def prompt_tokens(self, request: Request, route: RouteEntry) -> int:
        ratio = self._bytes_per_token.get(route.deployment, FIRST_GUESS)
        tokens = max(1, round(request.prompt_bytes / ratio))
        return _bounded(tokens, request, route)

    def total_tokens(self, request: Request, route: RouteEntry) -> int:
        """Prompt and answer; what is reserved."""
        answer = DEFAULT_ANSWER if request.max_tokens is None else request.max_tokens
        total = self.prompt_tokens(request, route) + answer
        return _bounded(total, request, route)

    def learn(self, request: Request, route: RouteEntry, prompt_tokens: int) -> None:
        if prompt_tokens < 1:
            return
        seen = min(max(request.prompt_bytes / prompt_tokens, 0.5), 64.0)
        known = self._bytes_per_token.pop(route.deployment, seen)
        self._bytes_per_token[route.deployment] = known + 0.1 * (seen - known)
        while len(self._bytes_per_token) > _DEPLOYMENTS:
            self._bytes_per_token.popitem(last=False)


def _bounded(tokens: int, request: Request, route: RouteEntry) -> int:
    """A context holds a prompt and its answer; a request for embeddings holds many texts, each of which has its own."""
    if not route.context_length or not request.endpoint.generates:
        return tokens
    return min(tokens, route.context_length)
