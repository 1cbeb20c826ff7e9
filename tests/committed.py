"""Teams whose rows are committed, so that other threads and processes see them, without transaction=True's flush of
every table after every test (seconds each). A test module that wants them says

    team, other_team = committed.team, committed.other_team

and holds at least one test with the mark django_db, by which pytest-django knows that a database is to be made.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tursiops.accounts.models import Team, User

from tests import factories


def _made() -> Iterator[Team]:
    team = factories.make_team()
    yield team
    User.objects.filter(memberships__team=team).delete()
    team.delete()


@pytest.fixture
def team(django_db_setup, django_db_blocker) -> Iterator[Team]:
    with django_db_blocker.unblock():
        yield from _made()


@pytest.fixture
def other_team(django_db_setup, django_db_blocker) -> Iterator[Team]:
    with django_db_blocker.unblock():
        yield from _made()
