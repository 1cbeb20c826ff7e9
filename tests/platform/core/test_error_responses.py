"""What people read when something below the API fails: its own shape, whatever raised and wherever."""

from __future__ import annotations

import errno

import pytest
from django.db import InterfaceError, OperationalError
from django.test import Client, RequestFactory
from tursiops.core import error_responses, home
from tursiops.core.filestore import StoreError

from tests import factories

FULL = [
    OperationalError("database or disk is full"),
    OperationalError('could not extend file "base/5/16394": No space left on device'),
    OSError(errno.ENOSPC, "No space left on device"),
    StoreError("disk_full", "no space left while writing a"),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_a_full_disk_is_named_with_what_to_do(error):
    response = error_responses.exception_handler(error, {})
    assert response is not None
    assert (response.status_code, response.data["error"]["code"]) == (503, "disk_full")
    assert "Free some space" in response.data["error"]["hint"]
    assert response.headers["Retry-After"]


@pytest.mark.parametrize("error", [OperationalError("connection refused"), InterfaceError("connection closed")])
def test_a_database_that_is_away_is_told_apart(error):
    response = error_responses.exception_handler(error, {})
    assert response is not None
    assert (response.status_code, response.data["error"]["code"]) == (503, "database_away")


@pytest.mark.parametrize("error", [OperationalError("no such column: x"), OSError("strange"), ValueError("bug")])
def test_a_mistake_of_ours_is_none_of_those(error):
    assert error_responses.exception_handler(error, {}) is None


@pytest.mark.django_db
def test_what_nobody_foresaw_keeps_the_shape(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("bug")

    client = Client(raise_request_exception=False)
    client.force_login(factories.make_user(factories.make_team()))
    monkeypatch.setattr(home, "overview", fail)
    response = client.get("/api/v1/overview")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal"


def test_a_page_keeps_its_own():
    assert error_responses.server_error(RequestFactory().get("/models")).headers["Content-Type"].startswith("text/html")
