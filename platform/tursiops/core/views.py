"""The bases of the control plane's views: rows of the current team only, and nothing undeclared comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.views import APIView

from tursiops.core.audit import Actor, actor_of
from tursiops.core.inputs import Input, NoInput, unknown_fields
from tursiops.core.permissions import RestrictedQuerySet, action_of

if TYPE_CHECKING:
    from tursiops.accounts.models import Team

_WRITES = ("POST", "PUT", "PATCH", "DELETE")


# Base of every view. `inputs` and `queries` say what an action (of plain views: a method in lower case) reads from
# body and query string; what is not declared is refused before the action runs.
# A comment, for a docstring would be inherited into the API's reference.
class DeclaredView(APIView):
    inputs: Mapping[str, type[Input]] = {}
    queries: Mapping[str, type[Input]] = {}
    filterset_fields: list[str] = []

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # first who it is: strangers learn no names
        if request.method == "OPTIONS" or not hasattr(self, (request.method or "").lower()):
            return  # a method that is not there is told as that
        if refused := unknown_fields(request.query_params, self._query_names(), "parameter"):
            raise serializers.ValidationError(refused)
        if request.method in _WRITES and self._name not in self.inputs:
            NoInput(data=request.data or {}).is_valid(raise_exception=True)

    @property
    def _name(self) -> str:
        method = (self.request.method or "").lower()
        return getattr(self, "action", None) or ("get" if method == "head" else method)

    def _query_names(self) -> list[str]:
        names = list(self.queries.get(self._name, NoInput)().fields)
        if self._name == "list":
            paginator = getattr(self, "paginator", None)
            pages = [paginator.page_query_param, paginator.page_size_query_param] if paginator else []
            names += [*self.filterset_fields, *pages]
        return names

    def valid_input(self) -> dict[str, Any]:
        """The body as the action's serializer reads it. Raises ValidationError."""
        return self._valid(self.inputs[self._name], self.request.data)

    def valid_query(self) -> dict[str, Any]:
        """The query string as the action's serializer reads it. Raises ValidationError."""
        return self._valid(self.queries[self._name], self.request.query_params)

    def _valid(self, of: type[Input], data: Any) -> dict[str, Any]:
        serializer = of(data=data, context={"request": self.request, "view": self})
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


class TeamViewSet(DeclaredView, viewsets.GenericViewSet[Any]):
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
