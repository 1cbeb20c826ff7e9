"""The order of the queue: classes, promotion, resumed requests, tenants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.native.request import Request, SamplingParams
from engines.native.tenants import Tenants
from engines.native.waiting import PROMOTE_EVERY, WaitingQueue


class Queue:
    def __init__(self) -> None:
        self.tenants = Tenants()
        self.queue = WaitingQueue(self.tenants)
        self.numbers = itertools.count(1)

    def add(self, priority: int = 0, tenant: str = "", preempted: bool = False) -> Request:
        number = next(self.numbers)
        request = Request(
            number, np.zeros(2, np.int32), SamplingParams(), 2, priority=priority, tenant=tenant, sequence=number
        )
        request.rank, request.slot, request.preemptions = priority, self.tenants.arrive(tenant), int(preempted)
        self.queue.arrive(request)
        return request

    def admit(self) -> Request:
        request = self.queue.pop()
        self.queue.admitted(request, 2)
        return request


def test_classes_are_strict_and_a_class_is_in_order_of_arrival() -> None:
    queue = Queue()
    low, high, also_high, urgent = queue.add(1), queue.add(0), queue.add(0), queue.add(-5)
    assert [queue.admit() for _ in range(4)] == [urgent, high, also_high, low]
    with pytest.raises(IndexError):
        queue.queue.pop()


def test_a_lower_class_gets_one_of_eight_admissions_even_if_the_higher_one_never_pauses() -> None:
    queue = Queue()
    starving = [queue.add(5), queue.add(7)]
    order = []
    for _ in range(4 * PROMOTE_EVERY):
        queue.add(0)  # one at a time: its class is empty while it is admitted
        order.append(queue.admit())
    places = [order.index(request) for request in starving]
    assert places[0] == PROMOTE_EVERY
    assert places[1] <= 2 * PROMOTE_EVERY + 1
    assert all(request.rank == 0 for request in starving), "promoted, or they would be preempted at once"


def test_preempted_requests_of_a_class_go_first_in_order_of_arrival() -> None:
    queue = Queue()
    fresh = queue.add(0, "a")
    resumed = [queue.add(0, "b", preempted=True), queue.add(0, "a", preempted=True)]
    urgent = queue.add(-1, "b")
    assert [queue.admit() for _ in range(4)] == [urgent, *resumed, fresh]


def test_an_id_that_is_used_again_is_another_request() -> None:
    queue = Queue()
    gone = queue.add()
    queue.queue.discard(gone)
    queue.numbers = itertools.count(1)
    again = queue.add(priority=3)
    assert again.id == gone.id
    queue.queue.discard(gone)
    assert queue.admit() is again


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("pop"), st.booleans()),
        st.tuples(st.just("discard"), st.integers(0, 40)),
    ),
    max_size=80,
)


@given(actions)
def test_whatever_happens_each_request_leaves_once_and_none_is_lost(plan: list) -> None:
    queue, inside = Queue(), []
    for action in plan:
        if action[0] == "add":
            inside.append(queue.add(*action[1:]))
        elif action[0] == "discard" and inside:
            victim = inside.pop(action[1] % len(inside))
            queue.queue.discard(victim)
            queue.queue.discard(victim)
        elif action[0] == "pop" and inside:
            request = queue.queue.pop()
            if action[1]:
                queue.queue.admitted(request, 2)
                inside.remove(request)
            else:
                queue.queue.push(request)
        assert len(queue.queue) == len(inside)
        assert queue.queue.tenants == len({request.tenant for request in inside})
    assert sorted(queue.admit().id for _ in list(inside)) == sorted(request.id for request in inside)
    assert not queue.queue._classes
