"""/ws/live on a real channel layer, and the numbering of events that it relies on."""

import asyncio
import threading
import uuid

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from tursiops.accounts.models import Membership
from tursiops.core import events, selectors
from tursiops.jobs.live import push_progress

from tests import committed, factories
from tests.websockets import socket_of

team, other_team = committed.team, committed.other_team


def record(team, text="changed"):
    with transaction.atomic():
        return events.record(
            team=team, kind="model.changed", subject_type="model", subject_id=uuid.uuid4(), text=text, payload={"a": 1}
        )


async def connect(user, query=""):
    return await socket_of(user, f"/ws/live{query}")


async def test_hello_then_missed_events_then_new_ones_in_order(team, viewer):
    for number in range(3):
        await sync_to_async(record)(team, f"change {number}")
    socket = await connect(viewer, "?after=1")
    assert await socket.receive() == {"type": "hello", "last_event_id": 3}
    assert [(await socket.receive())["event"]["id"] for _ in range(2)] == [2, 3]
    await sync_to_async(record)(team, "a new one")
    message = await socket.receive(3)  # pushed, not polled: the poll is every 15 s
    assert (message["type"], message["event"]["id"], message["event"]["text"]) == ("event", 4, "a new one")
    assert message["event"]["payload"] == {"a": 1}
    await socket.disconnect()


async def test_other_teams_events_are_not_seen(team, other_team, viewer):
    socket = await connect(viewer)
    await socket.receive()
    await sync_to_async(record)(other_team)
    assert await socket.is_silent(0.5)
    await socket.disconnect()


async def test_gap_over_the_limit_asks_for_a_resync(team, viewer, monkeypatch):
    monkeypatch.setattr("tursiops.core.live.MAX_GAP", 2)
    for _ in range(4):
        await sync_to_async(record)(team)
    socket = await connect(viewer, "?after=0")
    assert (await socket.receive())["last_event_id"] == 4
    assert await socket.receive() == {"type": "resync"}
    assert await socket.closed_with() == 1000
    socket = await connect(viewer, "?after=9")  # the database was set back
    await socket.receive()
    assert await socket.receive() == {"type": "resync"}


async def test_strangers_and_bad_ids_are_closed_with_a_reason(team, viewer):
    socket = await connect(None)
    assert await socket.closed_with() == 4401
    for bad in ("?after=x", "?after=-1", "?after=99999999999999999999999", "?after=²", "?aftr=1", "?after=1&x"):
        socket = await connect(viewer, bad)
        assert await socket.closed_with() == 4400


async def test_lost_membership_closes_the_socket_before_the_next_event(team, viewer):
    socket = await connect(viewer)
    await socket.receive()
    await sync_to_async(Membership.objects.filter(user=viewer).delete)()
    await sync_to_async(record)(team)
    assert await socket.closed_with() == 4403


async def test_job_progress_is_thinned_to_the_last_value(team, viewer):
    job = await sync_to_async(factories.make_job)(team)
    socket = await connect(viewer)
    await socket.receive()
    for step in range(1, 21):
        await sync_to_async(push_progress)(job, step / 20, f"{step} of 20", [("e2el_ms", step, 1.5)])
    seen = [await socket.receive()]
    while seen[-1]["progress"] < 1:
        seen.append(await socket.receive())
    assert {message["type"] for message in seen} == {"job"}
    assert len(seen) <= 6
    points = [point for message in seen for point in message.pop("points")]
    assert points == [["e2el_ms", step, 1.5] for step in range(1, 21)]  # none is thinned away
    assert seen[-1] == {
        "type": "job",
        "id": str(job.pk),
        "progress": 1.0,
        "progress_text": "20 of 20",
        "state": job.state,
    }
    await socket.disconnect()


def test_two_interleaved_transactions_hide_no_event_from_a_follower(team, viewer):
    """The first to take a number commits last: a follower that polls meanwhile must not skip it (PostgreSQL)."""
    assert connection.vendor == "postgresql"
    first_written, second_begun, may_commit = threading.Event(), threading.Event(), threading.Event()
    errors = []

    def first():
        try:
            with transaction.atomic():
                events.record(team=team, kind="a", subject_type="x", subject_id=uuid.uuid4(), text="first")
                first_written.set()
                assert may_commit.wait(10)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    def second():
        try:
            assert first_written.wait(10)
            with transaction.atomic():
                second_begun.set()
                events.record(team=team, kind="b", subject_type="x", subject_id=uuid.uuid4(), text="second")
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    record(team, "zeroth")
    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    assert second_begun.wait(10)
    seen, after = [], 0

    def poll():
        nonlocal after
        for event in selectors.events_after(user=viewer, team=team, after=after, limit=10):
            seen.append((event.sequence, event.text))
            after = event.sequence

    for _ in range(5):  # the second waits for the first; neither is visible
        poll()
        threading.Event().wait(0.05)
    assert seen == [(1, "zeroth")]
    may_commit.set()
    for thread in threads:
        thread.join(10)
    poll()
    assert errors == []
    assert seen == [(1, "zeroth"), (2, "first"), (3, "second")]


@pytest.mark.django_db
def test_rolled_back_change_leaves_no_number_behind(team):
    with transaction.atomic():
        events.record(team=team, kind="a", subject_type="x", subject_id=uuid.uuid4(), text="never")
        transaction.set_rollback(True)
    assert record(team).sequence == 1


def test_event_outside_a_transaction_is_refused(team):
    with pytest.raises(RuntimeError, match="outside a transaction"):
        events.record(team=team, kind="a", subject_type="x", subject_id=uuid.uuid4(), text="no transaction")


async def test_burst_of_events_arrives_whole(team, viewer):
    socket = await connect(viewer)
    await socket.receive()
    await asyncio.gather(*(sync_to_async(record)(team) for _ in range(20)))
    assert [(await socket.receive())["event"]["id"] for _ in range(20)] == list(range(1, 21))
    await socket.disconnect()
