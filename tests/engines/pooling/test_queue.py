"""The queue of a pooling core: turns, budgets, deadlines, endings; random schedules end every request once."""

from __future__ import annotations

import numpy as np
import pytest

from engines.native.pooling.messages import Pool
from engines.native.pooling.queue import Queue
from engines.native.request import Finish


def _message(request_id: int, lengths: list[int], **changes: object) -> Pool:
    """Texts whose every token is the request's id."""
    ids = np.full(sum(lengths), request_id, np.int32)
    sizes = np.array(lengths, np.int32).tobytes()
    return Pool(request_id, ids.tobytes(), sizes, sizes, **changes)  # type: ignore[arg-type]


def _take(queue: Queue) -> list[tuple[int, int]]:
    return [(text.request.id, len(text.token_ids)) for text in queue.take()]


def test_a_pass_is_filled_to_its_budget_shortest_first():
    queue = Queue(max_tokens=20, max_texts=8)
    queue.add(_message(1, [9, 3, 8, 5]), 0.0)
    assert _take(queue) == [(1, 3), (1, 8), (1, 9)]
    assert _take(queue) == [(1, 5)]


def test_a_text_over_the_budget_goes_alone():
    queue = Queue(max_tokens=4, max_texts=8)
    queue.add(_message(1, [9, 2]), 0.0)
    assert _take(queue) == [(1, 9)]
    assert _take(queue) == [(1, 2)]


@pytest.mark.parametrize(("max_tokens", "max_texts"), [(10, 100), (1000, 1)])
def test_requests_take_turns(max_tokens, max_texts):
    """Also where a pass holds one text."""
    queue = Queue(max_tokens, max_texts)
    queue.add(_message(1, [10] * 50), 0.0)
    queue.add(_message(2, [10]), 0.0)
    assert sorted(_take(queue) + _take(queue)) == [(1, 10), (2, 10)]


def test_lower_priority_numbers_come_first():
    queue = Queue(max_tokens=10, max_texts=100)
    queue.add(_message(1, [5] * 4, priority=1), 0.0)
    queue.add(_message(2, [5] * 2, priority=-1), 0.0)
    assert _take(queue) == [(2, 5), (2, 5)]
    assert _take(queue) == [(1, 5), (1, 5)]


def test_vectors_come_in_the_order_of_the_texts():
    queue = Queue(max_tokens=6, max_texts=100)
    queue.add(_message(1, [5, 2, 4, 1]), 0.0)
    while queue.has_work:
        texts = queue.take()
        queue.done(texts, np.array([[len(text.token_ids), text.index] for text in texts], np.float32))
    [end] = queue.ends
    vectors = np.frombuffer(end.vectors, np.float32).reshape(4, 2)
    assert vectors.tolist() == [[5, 0], [2, 1], [4, 2], [1, 3]]
    assert (end.finish, queue.started) == (Finish.STOP, [1])


def test_deadlines_say_which():
    queue = Queue(max_tokens=10, max_texts=100)
    queue.add(_message(1, [9] * 3, queue_timeout=2.0, timeout=5.0), 0.0)
    queue.add(_message(2, [9], priority=1, queue_timeout=2.0), 0.0)
    queue.take()
    queue.expire(3.0)
    assert [(end.id, end.code) for end in queue.ends] == [(2, "queue_timeout")]
    assert (queue.begun, queue.waiting) == (1, 0)
    queue.expire(6.0)
    assert [(end.id, end.code) for end in queue.ends] == [(2, "queue_timeout"), (1, "total_timeout")]
    assert not queue.has_work
    assert _take(queue) == []


def test_a_failed_pass_ends_its_requests_alone():
    queue = Queue(max_tokens=10, max_texts=100)
    queue.add(_message(1, [5, 5, 5]), 0.0)
    queue.add(_message(2, [9], priority=1), 0.0)
    queue.fail(queue.take(), "broken")
    assert [(end.id, end.finish, end.message) for end in queue.ends] == [(1, Finish.ERROR, "broken")]
    assert _take(queue) == [(2, 9)]


@pytest.mark.parametrize("seed", range(30))
def test_random_schedules_end_every_request_once(seed):
    random = np.random.default_rng(seed)
    queue = Queue(max_tokens=int(random.integers(1, 40)), max_texts=int(random.integers(1, 9)))
    sent, aborted, ends, now = 0, set(), [], 0.0
    while sent < 40 or queue.has_work:
        now += 1.0
        if sent < 40 and random.random() < 0.5:
            sent += 1
            lengths = random.integers(1, 30, random.integers(1, 12)).tolist()
            times = {"timeout": 9.0} if random.random() < 0.3 else {}
            queue.add(_message(sent, lengths, priority=int(random.integers(0, 3)), **times), now)
        if sent and random.random() < 0.1:
            victim = int(random.integers(1, sent + 1))
            aborted.add(victim)
            queue.end(victim, Finish.ABORT)
        queue.expire(now)
        texts = queue.take()
        assert len(texts) == 1 or sum(len(text.token_ids) for text in texts) <= queue.max_tokens
        assert len(texts) <= queue.max_texts
        if texts and random.random() < 0.05:
            queue.fail(texts, "broken")
        elif texts:
            queue.done(texts, np.array([text.token_ids[:1] for text in texts], np.float32))
        ends += queue.ends
        queue.ends = []
        assert queue.begun == sum(work.started for work in queue.living.values())
    assert sorted(end.id for end in ends) == list(range(1, 41))
    for end in ends:
        if end.finish is Finish.STOP:
            assert set(np.frombuffer(end.vectors, np.float32).tolist()) == {end.id}
    assert not queue.living
