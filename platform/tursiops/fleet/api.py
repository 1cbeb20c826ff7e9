"""REST of nodes: everyone signed in sees them, admins close and empty them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from tursiops.core.audit import actor_of
from tursiops.core.permissions import Action
from tursiops.core.views import DeclaredView
from tursiops.fleet import services
from tursiops.fleet.models import Node
from tursiops.fleet.selectors import node_rows
from tursiops.fleet.serializers import NodeSerializer


class NodeViewSet(DeclaredView, GenericViewSet[Node]):
    """Nodes have no team, so there is nothing to restrict; instances on them are restricted by the selector."""

    queryset = Node.objects.prefetch_related("gpus")
    serializer_class = NodeSerializer
    lookup_value_converter = "uuid"
    required_action = {"cordon": Action.VIEW, "uncordon": Action.VIEW, "drain": Action.VIEW}  # see _change

    @extend_schema(operation_id="nodes_list", responses=NodeSerializer(many=True))
    def list(self, request: Request) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self._rows([*(page or [])]))

    @extend_schema(operation_id="nodes_get", responses=NodeSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(self._rows([self.get_object()])[0])

    @extend_schema(operation_id="nodes_cordon", request=None, responses=NodeSerializer)
    @action(detail=True, methods=["post"])
    def cordon(self, request: Request, pk: str) -> Response:
        return self._change(services.node_cordon)

    @extend_schema(operation_id="nodes_uncordon", request=None, responses=NodeSerializer)
    @action(detail=True, methods=["post"])
    def uncordon(self, request: Request, pk: str) -> Response:
        return self._change(services.node_uncordon)

    @extend_schema(operation_id="nodes_drain", request=None, responses=NodeSerializer)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str) -> Response:
        return self._change(services.node_drain)

    def _change(self, service: Callable[..., Node]) -> Response:
        """A node is shared by all teams, so the admin of one team may not close it."""
        if not self.request.user.is_superuser:
            raise PermissionDenied("Only an admin of the installation may change nodes.")
        team = self.request.team  # type: ignore[attr-defined] # set by middleware or key
        return Response(self._rows([service(node=self.get_object(), team=team, actor=actor_of(self.request))])[0])

    def _rows(self, nodes: builtins.list[Node]) -> builtins.list[dict[str, Any]]:
        return node_rows(nodes, user=self.request.user, team=self.request.team)  # type: ignore[attr-defined] # as above
