"""Events are numbered in commit order within a team, written with their change, and told after the commit."""

from __future__ import annotations

import threading
import uuid

import pytest
from django.db import connection, transaction
from tursiops.core import events
from tursiops.core.audit import Actor, record_change
from tursiops.core.models import Event

from tests import factories


def record(team, text="x"):
    return events.record(team=team, kind="test.event", subject_type="test", subject_id=uuid.uuid4(), text=text)


@pytest.mark.django_db
def test_numbers_rise_by_one_within_a_team(team, other_team):
    assert [record(team).sequence, record(other_team).sequence, record(team).sequence] == [1, 1, 2]


@pytest.mark.django_db(transaction=True)
def test_event_outside_a_transaction_is_refused(team):
    with pytest.raises(RuntimeError, match="outside a transaction"):
        record(team)


@pytest.mark.django_db(transaction=True)
def test_event_goes_with_a_change_that_is_rolled_back(team):
    with transaction.atomic():
        record(team)
        transaction.set_rollback(True)
    with transaction.atomic():
        assert record(team).sequence == 1, "no gap is left"


@pytest.mark.django_db(transaction=True)
def test_two_interleaved_transactions_never_show_a_later_number_first(team):
    """The second writer waits for the first: whoever has seen n has seen all below n."""
    first_wrote, may_commit = threading.Event(), threading.Event()
    committed: list[str] = []

    def slow_first():
        with transaction.atomic():
            record(team, "first")
            first_wrote.set()
            assert may_commit.wait(10)
        committed.append("first")
        connection.close()

    def second():
        with transaction.atomic():
            record(team, "second")
        committed.append("second")
        connection.close()

    one, two = threading.Thread(target=slow_first), threading.Thread(target=second)
    one.start()
    assert first_wrote.wait(10)
    two.start()
    two.join(0.5)
    assert two.is_alive(), "the second has to wait for the counter's row"
    assert list(Event.objects.filter(team=team)) == []
    may_commit.set()
    one.join(10)
    two.join(10)
    assert committed == ["first", "second"]
    assert list(Event.objects.filter(team=team).values_list("sequence", "text")) == [(1, "first"), (2, "second")]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
@pytest.mark.django_db(transaction=True)
def test_other_teams_do_not_wait(team, other_team):
    with transaction.atomic():
        record(team)
        done = threading.Event()

        def elsewhere():
            with transaction.atomic():
                record(other_team)
            connection.close()
            done.set()

        thread = threading.Thread(target=elsewhere)
        thread.start()
        assert done.wait(5)
        thread.join()


@pytest.mark.django_db
def test_broker_away_does_not_undo_a_change(team, settings, django_capture_on_commit_callbacks):
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": ["unix:///tmp/there-is-no-such-broker.sock"]},
        }
    }
    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        record(team)
    assert len(callbacks) == 1
    assert Event.objects.filter(team=team).exists()


@pytest.mark.django_db
def test_change_leaves_event_and_audit_entry_with_values_json_can_hold(team, member):
    from django.utils import timezone
    from tursiops.accounts.models import AuditEntry

    record_change(
        team=team,
        actor=Actor("alice", member, "10.0.0.1"),
        kind="thing.changed",
        subject_type="thing",
        subject_id=team.pk,
        text="a thing was changed",
        payload={"id": team.pk, "at": timezone.now()},
        changes={"at": [None, timezone.now()]},
    )
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.address) == ("alice", "thing.changed", "10.0.0.1")
    assert Event.objects.get().payload["id"] == str(team.pk)


def test_text_longer_than_its_column_is_cut(team):
    with transaction.atomic():
        assert len(record(team, "x" * 1000).text) == 500


def test_counter_row_is_made_once_by_two_at_a_time(transactional_db):
    """The very first event of a team, written by four at once."""
    team = factories.make_team()
    failures: list[Exception] = []

    def write():
        try:
            with transaction.atomic():
                record(team)
        except Exception as error:
            failures.append(error)
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert failures == []
    assert list(Event.objects.values_list("sequence", flat=True)) == [1, 2, 3, 4]
