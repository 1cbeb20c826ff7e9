"""Fixtures of every platform test: two teams, a person per role, and signed-in API clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections
from rest_framework.test import APIClient
from tursiops.accounts.models import Role, Team, User

from tests import factories


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Synchronous code of asynchronous views and consumers runs in one thread, whose connection stays for a minute: as
    long as it does, the database can't be dropped."""
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture
def team(db) -> Team:
    return factories.make_team()


@pytest.fixture
def other_team(db) -> Team:
    return factories.make_team()


@pytest.fixture
def viewer(team) -> User:
    return factories.make_user(team, Role.VIEWER)


@pytest.fixture
def member(team) -> User:
    return factories.make_user(team, Role.MEMBER)


@pytest.fixture
def admin(team) -> User:
    return factories.make_user(team, Role.ADMIN)


@pytest.fixture
def outsider(other_team) -> User:
    """Admin of another team: may do everything there and nothing here."""
    return factories.make_user(other_team, Role.ADMIN)


@pytest.fixture
def api(db) -> Callable[[User | None], APIClient]:
    """`api(user)`: a client with that person's session; `api(None)`: a stranger's."""

    def client_for(user: User | None) -> APIClient:
        client = APIClient()
        if user is not None:
            client.force_login(user)
        return client

    return client_for
