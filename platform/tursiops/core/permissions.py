"""Who may do what: roles in a team, the one queryset that views may use, and DRF's permission class.

Roles grow by inclusion: viewer < member < admin. Reading needs viewer, changing needs member, keys of others and
people need admin. A superuser is admin of every team.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from django.db import models
from rest_framework.permissions import BasePermission

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView


class Action(enum.StrEnum):
    VIEW = "view"
    CHANGE = "change"
    ADMIN = "admin"


_RANK = {"viewer": 1, "member": 2, "admin": 3}
_NEEDS = {Action.VIEW: 1, Action.CHANGE: 2, Action.ADMIN: 3}


def roles_for(action: Action) -> list[str]:
    return [role for role, rank in _RANK.items() if rank >= _NEEDS[action]]


class RestrictedQuerySet(models.QuerySet[Any]):
    """Rows are read through `restrict`, which is also what guards pushes to websockets."""

    def restrict(self, user: Any, action: Action = Action.VIEW, team: Any = None) -> RestrictedQuerySet:
        """The rows of the teams in which `user` may do `action`; of `team` alone, where given."""
        if not getattr(user, "is_authenticated", False):
            return self.none()
        path = getattr(self.model, "team_path", "team")
        queryset = self
        if team is not None:
            queryset = queryset.filter(**{path: team})
        if user.is_superuser:
            return queryset
        # A user has one membership per team, so the join repeats no row and needs no DISTINCT.
        memberships = "memberships" if path == "pk" else f"{path}__memberships"
        return queryset.filter(**{f"{memberships}__user": user, f"{memberships}__role__in": roles_for(action)})


class TeamPermission(BasePermission):
    """Signed in, member of the current team, and of the role that the method needs.

    A view may name a stricter `required_action` (Action), or a mapping of its actions to Actions.
    """

    message = "Your role in this team does not allow this. Ask an admin of the team."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False
        return may(request.user, action_of(request, view), getattr(request, "team", None))


def action_of(request: Request, view: APIView) -> Action:
    required: Any = getattr(view, "required_action", None)
    if isinstance(required, dict):
        required = required.get(getattr(view, "action", None))
    if required is not None:
        return Action(required)
    return Action.VIEW if request.method in ("GET", "HEAD", "OPTIONS") else Action.CHANGE


def may(user: Any, action: Action, team: Any) -> bool:
    """True if `user` may do `action` in `team`."""
    if not team:  # None, or a lazy one that turns out to be none
        return False
    if user.is_superuser:
        return True
    return bool(team.memberships.filter(user=user, role__in=roles_for(action)).exists())
