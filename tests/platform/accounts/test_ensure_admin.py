import json

import pytest
from django.core.management import call_command
from tursiops.accounts.models import Membership, Role, Team, User


def ensure(capsys, *args) -> dict:
    call_command("ensure_admin", *args)
    return json.loads(capsys.readouterr().out)


@pytest.mark.django_db
def test_first_call_makes_admin_and_team_second_changes_nothing(capsys, client):
    first = ensure(capsys)
    assert (first["created"], first["username"]) == (True, "admin")
    user = User.objects.get()
    assert user.is_superuser
    assert user.check_password(first["password"])
    assert Membership.objects.get(user=user).role == Role.ADMIN
    assert Team.objects.get().name == "default"
    assert ensure(capsys) == {"created": False, "username": "admin", "password": None}
    assert User.objects.count() == 1
