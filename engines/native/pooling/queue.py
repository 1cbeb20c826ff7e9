"""Requests of many texts each, and which texts the next pass takes.

Requests of equal priority take turns text by text, so one of a thousand texts delays one of a single text by no more
than a pass. A pass takes texts until its token budget is full, and always at least one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engines.native.pooling.messages import Pool, PoolEnd
from engines.native.request import Finish, TimeoutLayer


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a request. token_ids: int32 [length]; second: where its second segment begins, its length if none."""

    request: Work
    index: int
    token_ids: NDArray[np.int32]
    second: int


@dataclass(slots=True, eq=False)
class Work:
    """One request from arrival to ending. vectors: float32 [n, width], made with the first text that is done. Times:
    time.monotonic(), s."""

    id: int
    priority: int
    todo: deque[Text]
    left: int  # texts without a vector
    arrived: float
    queue_deadline: float
    deadline: float
    started: bool = False
    vectors: NDArray[np.float32] | None = None


@dataclass(slots=True)
class Queue:
    """Owns all living requests. What happened since the last report is in `started` and `ends`."""

    max_tokens: int  # of one pass
    max_texts: int
    living: dict[int, Work] = field(default_factory=dict)
    turns: dict[int, deque[Work]] = field(default_factory=dict)  # priority → requests with texts to do
    started: list[int] = field(default_factory=list)
    ends: list[PoolEnd] = field(default_factory=list)
    begun: int = 0  # living requests that were started

    @property
    def has_work(self) -> bool:
        return bool(self.living)

    @property
    def waiting(self) -> int:
        return len(self.living) - self.begun

    def add(self, message: Pool, now: float) -> None:
        ids = np.frombuffer(message.token_ids, np.int32)
        lengths = np.frombuffer(message.lengths, np.int32)
        seconds = np.frombuffer(message.seconds, np.int32).tolist()
        work = Work(
            id=message.id,
            priority=message.priority,
            todo=deque(),
            left=len(lengths),
            arrived=now,
            queue_deadline=now + (message.queue_timeout or math.inf),
            deadline=now + (message.timeout or math.inf),
        )
        for index, part in enumerate(np.split(ids, np.cumsum(lengths)[:-1])):
            work.todo.append(Text(work, index, part, seconds[index]))
        self.living[work.id] = work
        self.turns.setdefault(work.priority, deque()).append(work)

    def end(self, request_id: int, finish: Finish, message: str = "", code: str = "") -> None:
        """Of a request that did not come to its end. One that has ended already is none."""
        work = self.living.pop(request_id, None)
        if work is None:
            return
        work.todo.clear()
        self.begun -= work.started
        self.ends.append(PoolEnd(request_id, finish, message=message, code=code))

    def expire(self, now: float) -> None:
        for work in [work for work in self.living.values() if now >= min(work.queue_deadline, work.deadline)]:
            if now >= work.deadline:
                said = f"not finished within {work.deadline - work.arrived:g} s"
                self.end(work.id, Finish.TIMEOUT, said, TimeoutLayer.TOTAL)
            elif not work.started:
                said = f"not begun within {work.queue_deadline - work.arrived:g} s: the engine is overloaded"
                self.end(work.id, Finish.TIMEOUT, said, TimeoutLayer.QUEUE)

    def take(self) -> list[Text]:
        """The texts of the next pass, shortest first."""
        taken: list[Text] = []
        tokens = 0
        for text in self._in_turn():
            tokens += len(text.token_ids)
            if taken and (tokens > self.max_tokens or len(taken) == self.max_texts):
                text.request.todo.appendleft(text)
                break
            taken.append(text)
            if not text.request.started:
                text.request.started = True
                self.begun += 1
                self.started.append(text.request.id)
        taken.sort(key=lambda text: len(text.token_ids))
        return taken

    def _in_turn(self) -> Iterator[Text]:
        """Texts in the order in which they are due; each is taken off its request before it is given."""
        for priority in sorted(self.turns):
            turns = self.turns[priority]
            while turns:
                work = turns[0]
                if work.todo:
                    yield work.todo.popleft()  # and, where it was put back, this request keeps its turn
                if work.todo:
                    turns.rotate(-1)
                else:
                    turns.popleft()
            del self.turns[priority]

    def done(self, texts: list[Text], vectors: NDArray[np.float32]) -> None:
        """A pass gave float32 [len(texts), width]. Requests that ended meanwhile get nothing."""
        for text, vector in zip(texts, vectors, strict=True):
            work = text.request
            if work.id not in self.living:
                continue
            if work.vectors is None:
                work.vectors = np.empty((work.left, len(vector)), np.float32)
            work.vectors[text.index] = vector
            work.left -= 1
            if not work.left:
                del self.living[work.id]
                self.begun -= 1
                self.ends.append(PoolEnd(work.id, Finish.STOP, work.vectors.tobytes()))

    def fail(self, texts: list[Text], message: str) -> None:
        """A pass failed: its requests end with an error, others go on."""
        for request_id in {text.request.id for text in texts}:
            self.end(request_id, Finish.ERROR, message)
