"""Every request of a signed-in person happens in one team: the one chosen in the session, else the first."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from tursiops.accounts.models import Team


def current_team(request: HttpRequest) -> Team | None:
    """The team that the session names, if the user is still in it; else the user's first; None for strangers."""
    user = request.user
    if not user.is_authenticated:
        return None
    teams = Team.objects.restrict(user).order_by("created_at")
    chosen = request.session.get("team")
    return (teams.filter(pk=chosen).first() if chosen else None) or teams.first()


class CurrentTeamMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.team = SimpleLazyObject(lambda: current_team(request))  # type: ignore[attr-defined] # set for views
        return self.get_response(request)
