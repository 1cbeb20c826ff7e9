"""The loop of a pooling core, with a runner that fails where it is told to and a link that lies in lists."""

from __future__ import annotations

import os

import numpy as np
import pytest

from engines.native.core import MAX_FAILED_STEPS
from engines.native.ipc import End, Shutdown, decode_from_core, decode_to_core, encode
from engines.native.pooling.core import PoolingCore
from engines.native.pooling.messages import Pool, PoolEnd, PoolUpdate
from engines.native.pooling.queue import Queue
from engines.native.request import Finish

POISON = 66


class Link:
    """Gives one batch of messages per turn, then Shutdown; both ways through the wire format."""

    def __init__(self, *turns):
        self.turns, self.sent = list(turns), []

    def receive(self, timeout_ms):
        messages = self.turns.pop(0) if self.turns else [Shutdown()]
        return [decode_to_core(encode(message)) for message in messages]

    def send(self, message):
        self.sent.append(decode_from_core(encode(message)))

    @property
    def ends(self) -> list[PoolEnd]:
        assert all(isinstance(update, PoolUpdate) for update in self.sent)
        return [end for update in self.sent for end in update.ends]


class Sums:
    """The vector of a text is the sum of its ids."""

    def run(self, texts):
        for text in texts:
            if POISON in text.token_ids:
                raise RuntimeError("this token is poison")
        return np.array([[text.token_ids.sum()] for text in texts], np.float32)


def _pool(request_id: int, *texts: list[int], **changes) -> Pool:
    ids = np.array([token for text in texts for token in text], np.int32).tobytes()
    lengths = np.array([len(text) for text in texts], np.int32).tobytes()
    return Pool(request_id, ids, lengths, lengths, **changes)


def _run(*turns, max_tokens: int = 8) -> Link:
    link = Link(*turns)
    PoolingCore(Sums(), Queue(max_tokens, 4), link, os.getppid()).run()
    return link


def test_requests_are_answered_and_counted():
    link = _run([_pool(1, [1, 2], [3]), _pool(2, [4])], [])
    assert {end.id: np.frombuffer(end.vectors, np.float32).tolist() for end in link.ends} == {1: [3, 3], 2: [4]}
    assert [sorted(update.started) for update in link.sent] == [[1, 2]]
    assert [(update.running, update.waiting) for update in link.sent] == [(0, 0)]


def test_a_pass_that_fails_takes_its_requests_alone():
    link = _run([_pool(1, [POISON]), _pool(2, [5], priority=1)], [], [], max_tokens=1)
    assert [(end.id, end.finish) for end in link.ends] == [(1, Finish.ERROR), (2, Finish.STOP)]
    assert "this token is poison" in link.ends[0].message


def test_passes_that_fail_in_a_row_end_the_process():
    turns = [[_pool(number, [POISON])] for number in range(MAX_FAILED_STEPS)]
    link = Link(*turns)
    with pytest.raises(RuntimeError, match="poison"):
        PoolingCore(Sums(), Queue(8, 4), link, os.getppid()).run()
    assert [end.finish for end in link.ends] == [Finish.ERROR] * MAX_FAILED_STEPS


def test_a_client_that_left_is_told_nothing_more():
    link = _run([_pool(1, *[[7]] * 20)], [End([1], Finish.ABORT)], [], max_tokens=1)
    assert [(end.id, end.finish, end.vectors) for end in link.ends] == [(1, Finish.ABORT, b"")]


def test_without_a_parent_the_loop_ends():
    link = Link([], [])
    PoolingCore(Sums(), Queue(8, 4), link, -1).run()
    assert link.turns == [[]]
