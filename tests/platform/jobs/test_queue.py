"""Messages to workers: sent to our broker from any thread; a broker that is away stops nothing."""

import threading

import pytest
import redis
from django.conf import settings
from tursiops.celery import app
from tursiops.jobs import queue

from tests import factories


@pytest.fixture
def waiting():
    """A function that counts the messages in the queue; the queue is emptied before and after."""
    broker = redis.Redis.from_url(settings.REDIS_URL)
    broker.delete("jobs")
    yield lambda: broker.llen("jobs")
    broker.delete("jobs")


@pytest.mark.django_db
def test_message_reaches_our_broker_from_every_thread(waiting):
    job = factories.make_job()
    queue.send(job.pk)
    thread = threading.Thread(target=queue.send, args=[job.pk])
    thread.start()
    thread.join()
    assert waiting() == 2


def test_broker_away_is_survived(waiting, monkeypatch):
    monkeypatch.setattr(app.conf, "broker_write_url", "redis+socket:///tmp/there-is-no-such-broker.sock")
    monkeypatch.setattr(app.amqp, "_producer_pool", None)
    monkeypatch.setattr(app, "_pool", None)
    queue.send(factories.uuid_of_nothing())
    assert waiting() == 0
