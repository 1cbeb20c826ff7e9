"""Time-outs in three layers: to be begun, to give a first token, to be finished. Each has its own name."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping

from engines.native.request import Request, TimeoutLayer

_SLACK = 1024
"""Entries of ended requests that the heap may hold beyond those of living ones before it is swept."""


class Deadlines:
    """All deadlines of living requests. An ended request's entries go when they come to the top, or in a sweep."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimeoutLayer]] = []
        self._sweep_at = _SLACK

    def watch(self, request: Request, living: Mapping[int, Request]) -> None:
        layers = (
            (request.queue_deadline, TimeoutLayer.QUEUE),
            (request.first_token_deadline, TimeoutLayer.FIRST_TOKEN),
            (request.deadline, TimeoutLayer.TOTAL),
        )
        for deadline, layer in layers:
            if deadline < math.inf:
                heapq.heappush(self._heap, (deadline, request.id, layer))
        if len(self._heap) > self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[1] in living]
            heapq.heapify(self._heap)
            self._sweep_at = 2 * len(self._heap) + _SLACK

    def due(self, now: float) -> Iterator[tuple[int, TimeoutLayer]]:
        """Request ids whose deadline has passed, each entry once. Whether the layer still concerns the request (it may
        have ended, begun, or given a token) is for the caller to say."""
        while self._heap and self._heap[0][0] <= now:
            _, request_id, layer = heapq.heappop(self._heap)
            yield request_id, layer


def reason(request: Request, layer: TimeoutLayer) -> str:
    """The sentence that its client reads."""
    match layer:
        case TimeoutLayer.QUEUE:
            limit = request.queue_deadline - request.arrived
            return f"not begun within {limit:g} s: the engine is overloaded"
        case TimeoutLayer.FIRST_TOKEN:
            return f"no token within {request.first_token_deadline - request.arrived:g} s"
        case TimeoutLayer.TOTAL:
            return f"not finished within {request.deadline - request.arrived:g} s"
