"""Due times are kept in order, and never early."""

import asyncio
import sys
import time

import pytest

from evaluation.client.timer import Timer


@pytest.mark.parametrize("platform", ["linux", "other"])
async def test_calls_come_in_order_and_not_early(monkeypatch, platform):
    if platform == "other":
        monkeypatch.setattr(sys, "platform", "darwin")
    timer, called, done = Timer(), [], asyncio.Event()
    now = time.monotonic_ns()

    def call(number: int, due: int):
        def inner() -> None:
            called.append((number, time.monotonic_ns() - due))
            if number == 1:  # from within a call: at once, and later
                timer.at(due, call(2, due))
                timer.at(due + 5_000_000, call(4, due + 5_000_000))
            if number == 4:
                done.set()

        return inner

    for number, after in ((3, 12_000_000), (1, 10_000_000), (0, -1_000_000)):
        timer.at(now + after, call(number, now + after))
    await asyncio.wait_for(done.wait(), 5)
    assert [number for number, _ in called] == [0, 1, 2, 3, 4]
    assert all(late >= 0 for _, late in called)
    timer.at(time.monotonic_ns() + 1_000_000, call(9, 0))
    timer.clear()
    await asyncio.sleep(0.01)
    assert called[-1][0] == 4
    timer.close()
