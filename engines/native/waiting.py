"""Requests without a row, in the order in which they are to be admitted."""

from __future__ import annotations

import heapq

from engines.native.request import Request


class WaitingQueue:
    """Priority, then arrival; a preempted request keeps its place of arrival. Removal is lazy: O(log n) in all."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int], Request]] = []
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def push(self, request: Request) -> None:
        self._members.add(request.id)
        heapq.heappush(self._heap, (request.order, request))

    def pop(self) -> Request:
        """The next one. Raises IndexError when empty."""
        while True:
            _, request = heapq.heappop(self._heap)
            if request.id in self._members:
                self._members.remove(request.id)
                return request

    def discard(self, request: Request) -> None:
        """Its entry is dropped when it reaches the top."""
        self._members.discard(request.id)
