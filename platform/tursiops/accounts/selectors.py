from __future__ import annotations

from django.db.models import Prefetch

from tursiops.accounts.models import ApiKey, AuditEntry, Membership, Role, Team, User
from tursiops.core.permissions import Action, RestrictedQuerySet, may


def api_keys(user: User, team: Team) -> RestrictedQuerySet:
    """All keys of the team for its admins; for others the keys that they made."""
    keys: RestrictedQuerySet = ApiKey.objects.select_related("created_by").order_by("-created_at")
    return keys if may(user, Action.ADMIN, team) else keys.filter(created_by=user.pk)


def audit() -> RestrictedQuerySet:
    entries: RestrictedQuerySet = AuditEntry.objects.order_by("-created_at")
    return entries


def teams_with_role(user: User) -> list[tuple[Team, str]]:
    """The teams of `user` with their role in each; a superuser is admin of every team."""
    teams = (
        Team.objects.restrict(user)
        .order_by("created_at")
        .prefetch_related(Prefetch("memberships", Membership.objects.filter(user=user), to_attr="own"))
    )
    return [(team, team.own[0].role if team.own and not user.is_superuser else Role.ADMIN.value) for team in teams]
