"""Roles grow by inclusion, and `restrict` is the same rule as `may`."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.utils.functional import SimpleLazyObject
from tursiops.accounts.models import Membership, Role, Team
from tursiops.core.permissions import Action, may
from tursiops.jobs.models import Job
from tursiops.registry.models import Version

from tests import factories

pytestmark = pytest.mark.django_db
ALLOWED = {
    Role.VIEWER: {Action.VIEW},
    Role.MEMBER: {Action.VIEW, Action.CHANGE},
    Role.ADMIN: {Action.VIEW, Action.CHANGE, Action.ADMIN},
}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("action", list(Action))
def test_may_and_restrict_agree(team, role, action):
    user, job = factories.make_user(team, role), factories.make_job(team)
    version = factories.make_version(team=team)
    expected = action in ALLOWED[role]
    assert may(user, action, team) is expected
    assert Job.objects.restrict(user, action).filter(pk=job.pk).exists() is expected
    assert Version.objects.restrict(user, action).filter(pk=version.pk).exists() is expected, "over a path of two"


def test_superuser_sees_every_team_and_one_where_asked(team, other_team):
    boss = factories.make_user(is_superuser=True)
    mine, theirs = factories.make_job(team), factories.make_job(other_team)
    assert set(Job.objects.restrict(boss)) == {mine, theirs}
    assert set(Job.objects.restrict(boss, team=team)) == {mine}
    assert may(boss, Action.ADMIN, team)


def test_member_of_two_teams_sees_one_at_a_time_and_nothing_twice(team, other_team, member):
    Membership.objects.create(team=other_team, user=member, role=Role.VIEWER)
    mine, theirs = factories.make_job(team), factories.make_job(other_team)
    assert sorted(Job.objects.restrict(member).values_list("pk", flat=True)) == sorted([mine.pk, theirs.pk])
    assert list(Job.objects.restrict(member, team=other_team)) == [theirs]
    assert list(Job.objects.restrict(member, Action.CHANGE)) == [mine]


def test_strangers_and_people_without_a_team_see_nothing(team):
    factories.make_job(team)
    for user in (AnonymousUser(), factories.make_user(), None):
        assert not Job.objects.restrict(user).exists()
    loner = factories.make_user()
    assert not may(loner, Action.VIEW, None)
    assert not may(loner, Action.VIEW, SimpleLazyObject(lambda: None))
    assert not may(factories.make_user(is_superuser=True), Action.VIEW, None)


def test_teams_themselves_are_restricted(team, other_team, member):
    assert list(Team.objects.restrict(member)) == [team]
    assert not Team.objects.restrict(member, Action.ADMIN).exists()
