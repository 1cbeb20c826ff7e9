"""Who may join the queue, and when a refused client is told to come back."""

from __future__ import annotations

import itertools

import pytest

from engines.native.serve import admission
from engines.native.serve.admission import QueueDoor
from engines.native.serve.errors import ApiError


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(admission.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Door(QueueDoor):
    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.ids = itertools.count(1)

    def fill(self, tenant: str) -> tuple[int, ApiError]:
        """As many as it lets in, and what the next one is told."""
        count = 0
        while True:
            try:
                self.enter(next(self.ids), tenant)
            except ApiError as error:
                return count, error
            count += 1


def test_one_tenant_alone_gets_four_fifths_and_the_next_one_finds_room() -> None:
    door = Door(100)
    count, refusal = door.fill("a")
    assert (count, refusal.status, refusal.code) == (80, 429, "tenant_queue_full")
    assert "your team has 80 requests" in refusal.message
    assert refusal.type == "rate_limit_error"
    count, refusal = door.fill("b")
    assert (count, refusal.status) == (16, 429)
    for tenant in "cdefgh":
        door.fill(tenant)
    assert door.fill("a")[1].status in (429, 503)


def test_two_that_are_equally_greedy_share_alike_in_the_long_run() -> None:
    door = Door(90)
    held = {"a": [], "b": []}
    for number in range(5000):
        tenant = "ab"[number % 2]
        try:
            door.enter(number, tenant)
            held[tenant].append(number)
        except ApiError:
            for each in held.values():
                if len(each) > 30:
                    door.leave(each.pop(0))
    assert abs(len(held["a"]) - len(held["b"])) <= 2
    assert len(held["a"]) >= 30


def test_a_full_queue_is_503_for_everyone_and_callers_without_a_tenant_may_fill_it() -> None:
    door = Door(10)
    count, refusal = door.fill("")
    assert (count, refusal.status, refusal.code) == (10, 503, "overloaded")
    assert door.fill("late")[1].status == 503


def test_a_tenant_is_always_let_in_with_one_request_where_there_is_room() -> None:
    door = Door(3)
    door.fill("a")
    count, refusal = door.fill("b")
    assert count + refusal.status in (503, 504)  # the last place, if one was left


def test_retry_after_follows_the_measured_rate(clock: Clock) -> None:
    door = Door(100)
    door.fill("")
    assert door.fill("")[1].retry_after == admission.UNKNOWN_WAIT_S
    for number in range(1, 21):  # two requests end per second, others take their places
        clock.now += 0.5
        door.leave(number)
        door.enter(1000 + number, "")
    assert door.fill("")[1].retry_after == 3  # five places at 2 per second, rounded up
    clock.now += 30
    assert door.fill("")[1].retry_after == pytest.approx(10, abs=1)  # nothing ended since: 20 in 40 s
    clock.now += 3600
    assert door.fill("")[1].retry_after == admission.UNKNOWN_WAIT_S


def test_retry_after_has_an_end(clock: Clock) -> None:
    door = Door(1_000_000)
    door._tenants = dict.fromkeys(range(1_000_000), "")
    clock.now += 1
    door._rate.ended(clock.now)
    clock.now += 50
    assert door.fill("")[1].retry_after == admission.LONGEST_WAIT_S


def test_one_tenants_wait_is_by_its_share_of_what_ends(clock: Clock) -> None:
    door = Door(100)
    door.fill("a")
    door.fill("b")  # 80 and 16
    for _ in range(10):
        clock.now += 1
        door._rate.ended(clock.now)
    assert door.fill("a")[1].retry_after == 6  # 5 places / (10 / 9 s × 80 / 96)
    assert door.fill("b")[1].retry_after == 27
