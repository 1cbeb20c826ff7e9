"""Requests without a row, in the order in which they are to be admitted.

class     `priority`, strictly; but every PROMOTE_EVERY-th admission takes who has waited longest of all, so that a
          lower class goes on slowly and does not starve. A promoted request stays in the class it rose to.
resumed   in a class, preempted requests first, in order of arrival: their clients have read the beginning
tenant    then the one that has had least (`engines.native.tenants`)
policy    and of its requests the first by the policy's key (`engines.native.policies`)
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from engines.native.policies import FirstCome, Policy
from engines.native.request import Request
from engines.native.tenants import Tenants

PROMOTE_EVERY = 8
"""A lower class gets at least one of so many admissions, while requests of several classes wait."""

Entry = tuple[tuple[float, ...], int, Request]  # (key, order of arrival, request)


@dataclass(slots=True)
class _Line:
    """A heap; who left it otherwise than from its top is dropped when he comes there."""

    count: int = 0
    heap: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class _Class:
    count: int = 0
    resumed: _Line = field(default_factory=_Line)
    tenants: dict[int, _Line] = field(default_factory=dict)  # by slot; only those with requests

    def line_of(self, request: Request) -> _Line:
        if request.preemptions:
            return self.resumed
        line = self.tenants.get(request.slot)
        if line is None:
            line = self.tenants[request.slot] = _Line()
        return line


class WaitingQueue:
    """O(log n) to enter and leave, O(tenants that wait) to choose."""

    def __init__(self, tenants: Tenants, policy: Policy | None = None) -> None:
        self._tenants, self._policy = tenants, policy or FirstCome()
        self._members: dict[int, Request] = {}
        self._classes: dict[int, _Class] = {}
        self._waiting: Counter[int] = Counter()  # by slot
        self._admissions = 0  # since the last promotion, past a waiting request of another class

    def __len__(self) -> int:
        return len(self._members)

    @property
    def tenants(self) -> int:
        """How many have a request here."""
        return len(self._waiting)

    def arrive(self, request: Request) -> None:
        """One that is new. Its tenant's counter is lifted where nothing of it waits."""
        if not self._waiting[request.slot]:
            self._tenants.lift(request.slot, self._waiting)
        self.push(request)

    def push(self, request: Request) -> None:
        """Back to its place: it could not be admitted, or was preempted."""
        self._members[request.id] = request
        self._waiting[request.slot] += 1
        group = self._classes.setdefault(request.rank, _Class())
        group.count += 1
        line = group.line_of(request)
        line.count += 1
        key = () if request.preemptions else self._policy.key(request)
        heapq.heappush(line.heap, (key, request.sequence, request))

    def pop(self) -> Request:
        """The next one. Raises IndexError when empty."""
        if not self._members:
            raise IndexError("no request waits")
        rank = min(self._classes)
        line = self._promoted() if self._admissions >= PROMOTE_EVERY and len(self._classes) > 1 else None
        line = line or self._next_line(self._classes[rank])
        request = line.heap[0][2]
        self._leave(request)
        heapq.heappop(line.heap)
        request.rank = rank
        return request

    def admitted(self, request: Request, computed: int) -> None:
        """`request`, popped before, has its row. computed: tokens of it that the engine has to compute."""
        others = len(self._classes) - (request.rank in self._classes)
        self._admissions = self._admissions + 1 if others else 0
        if not request.preemptions:
            self._tenants.admitted(request.slot, computed)

    def discard(self, request: Request) -> None:
        """It ended while it waited, or was not here."""
        if self._members.get(request.id) is request:
            self._leave(request)

    def _next_line(self, group: _Class) -> _Line:
        if self._head(group.resumed) is not None:
            return group.resumed
        if len(group.tenants) == 1:
            (line,) = group.tenants.values()
            self._head(line)
            return line
        served = self._tenants.served
        return min(group.tenants.items(), key=lambda item: (served[item[0]], self._sequence(item[1])))[1]

    def _promoted(self) -> _Line:
        """The line whose first has waited longest."""
        self._admissions = 0
        lines = [
            line for group in self._classes.values() for line in (group.resumed, *group.tenants.values()) if line.count
        ]
        return min(lines, key=self._sequence)

    def _sequence(self, line: _Line) -> int:
        head = self._head(line)
        assert head is not None
        return head.sequence

    def _head(self, line: _Line) -> Request | None:
        while line.heap and self._members.get(line.heap[0][2].id) is not line.heap[0][2]:
            heapq.heappop(line.heap)
        return line.heap[0][2] if line.heap else None

    def _leave(self, request: Request) -> None:
        del self._members[request.id]
        self._waiting[request.slot] -= 1
        if not self._waiting[request.slot]:
            del self._waiting[request.slot]
        group = self._classes[request.rank]
        line = group.line_of(request)
        group.count -= 1
        line.count -= 1
        if not line.count and line is not group.resumed:
            del group.tenants[request.slot]
        if not group.count:
            del self._classes[request.rank]
