"""The base of the control plane's viewsets: rows of the current team only, one serializer for each direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework import viewsets

from tursiops.core.audit import Actor, actor_of
from tursiops.core.permissions import RestrictedQuerySet, action_of

if TYPE_CHECKING:
    from tursiops.accounts.models import Team


class TeamViewSet(viewsets.GenericViewSet[Any]):
    """Subclasses override `rows()` (a selector's queryset), never `get_queryset`: that is what applies `restrict`."""

    lookup_value_converter = "uuid"  # with use_regex_path=False: a path that is no id is a 404

    def rows(self) -> RestrictedQuerySet:
        raise NotImplementedError(f"{type(self).__name__}.rows")

    def get_queryset(self) -> Any:
        rows = self.rows()
        if getattr(self, "swagger_fake_view", False):  # the schema is made without a request
            return rows.none()
        return rows.restrict(self.request.user, action_of(self.request, self), self.team)

    @property
    def team(self) -> Team:
        return self.request.team  # type: ignore[attr-defined,no-any-return] # set by middleware or key

    @property
    def actor(self) -> Actor:
        return actor_of(self.request)
