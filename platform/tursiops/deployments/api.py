"""REST of deployments, their revisions and instances, and of the engines that can serve them."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core import registry
from tursiops.core import selectors as core
from tursiops.core.api import EventPageSerializer
from tursiops.core.permissions import Action, RestrictedQuerySet
from tursiops.core.views import DeclaredView, TeamViewSet
from tursiops.deployments import logs, selectors, services
from tursiops.deployments import serializers as s
from tursiops.deployments.capacity import Asked, capacity
from tursiops.deployments.checks import check_replicas, check_revision
from tursiops.deployments.diagnose_api import DiagnoseActions
from tursiops.deployments.estimate import estimate
from tursiops.deployments.models import Deployment, Revision
from tursiops.deployments.rows import deployment_row, instance_row, revision_row
from tursiops.deployments.speculation_api import DeploymentSpeculationAction, InstanceSpeculationAction
from tursiops.jobs.serializers import LogPageSerializer


class DeploymentViewSet(DeploymentSpeculationAction, TeamViewSet):
    serializer_class = s.DeploymentSerializer
    required_action = {"estimate": Action.VIEW, "capacity": Action.VIEW}
    inputs = {
        "create": s.CreateDeploymentSerializer,
        "partial_update": s.UpdateDeploymentSerializer,
        "estimate": s.EstimateRequestSerializer,
        "capacity": s.CapacityRequestSerializer,
        "scale": s.ScaleSerializer,
        "rollback": s.RollbackSerializer,
    }
    queries = {"events": s.EventsQuerySerializer}

    def rows(self) -> RestrictedQuerySet:
        return selectors.deployments()  # type: ignore[no-any-return]

    @extend_schema(operation_id="deployments_list", responses=s.DeploymentSerializer(many=True))
    def list(self, request: Request) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response([deployment_row(row) for row in page or []])

    @extend_schema(operation_id="deployments_get", responses=s.DeploymentSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(deployment_row(self.get_object()))

    @extend_schema(
        operation_id="deployments_create", request=s.CreateDeploymentSerializer, responses={201: s.DeploymentSerializer}
    )
    def create(self, request: Request) -> Response:
        values = self.valid_input()
        row = services.deployment_create(team=self.team, actor=self.actor, **values)
        return self._answer(row, status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="deployments_update",
        request=s.UpdateDeploymentSerializer,
        responses=s.UpdatedDeploymentSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        deployment = self.get_object()
        values = self.valid_input()
        updated = services.deployment_update(deployment=deployment, actor=self.actor, **values)
        return self._updated(updated)

    @extend_schema(operation_id="deployments_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        services.deployment_delete(deployment=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="deployments_estimate", request=s.EstimateRequestSerializer, responses=s.EstimateSerializer
    )
    @action(detail=False, methods=["post"])
    def estimate(self, request: Request) -> Response:
        values = self.valid_input()
        name, replicas = values.pop("name", ""), values.pop("replicas", {"unified": 1})
        values.pop("description", None)
        revision = Revision(number=1, **values)
        check_replicas(replicas, check_revision(revision).capabilities())
        replaces = selectors.instances_named(self.team, name)
        found = estimate(revision=revision, replicas=replicas, served_name=name, replaces=replaces)
        return Response(found.as_dict())

    @extend_schema(
        operation_id="deployments_capacity", request=s.CapacityRequestSerializer, responses=s.CapacitySerializer
    )
    @action(detail=False, methods=["post"])
    def capacity(self, request: Request) -> Response:
        values = self.valid_input()
        replaces = selectors.instances_named(self.team, values.pop("name", ""))
        names = ("dtypes", "contexts", "concurrencies")
        lists = {name: tuple(values.pop(name)) for name in names if name in values}
        asked = Asked(**lists, memory_bytes=values.pop("memory_bytes", 0))
        revision = Revision(number=1, **values)
        engine = check_revision(revision)
        return Response(capacity(revision=revision, engine=engine, asked=asked, replaces=replaces))

    @extend_schema(operation_id="deployments_scale", request=s.ScaleSerializer, responses=s.DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def scale(self, request: Request, pk: str) -> Response:
        deployment = self.get_object()
        replicas = self.valid_input()["replicas"]
        return self._answer(services.deployment_scale(deployment=deployment, actor=self.actor, replicas=replicas))

    @extend_schema(operation_id="deployments_stop", request=None, responses=s.DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        return self._answer(services.deployment_stop(deployment=self.get_object(), actor=self.actor))

    @extend_schema(operation_id="deployments_start", request=None, responses=s.DeploymentSerializer)
    @action(detail=True, methods=["post"])
    def start(self, request: Request, pk: str) -> Response:
        return self._answer(services.deployment_start(deployment=self.get_object(), actor=self.actor))

    @extend_schema(
        operation_id="deployments_rollback", request=s.RollbackSerializer, responses=s.UpdatedDeploymentSerializer
    )
    @action(detail=True, methods=["post"])
    def rollback(self, request: Request, pk: str) -> Response:
        deployment = self.get_object()
        number = self.valid_input()["revision"]
        return self._updated(services.deployment_rollback(deployment=deployment, actor=self.actor, number=number))

    @extend_schema(operation_id="deployments_revisions", responses=s.RevisionSerializer(many=True))
    @action(detail=True, pagination_class=None)
    def revisions(self, request: Request, pk: str) -> Response:
        deployment = self.get_object()
        rows = selectors.revisions(deployment)
        return Response([revision_row(row, deployment.current_id) for row in rows])

    @extend_schema(
        operation_id="deployments_events", parameters=[s.EventsQuerySerializer], responses=EventPageSerializer
    )
    @action(detail=True, pagination_class=None)
    def events(self, request: Request, pk: str) -> Response:
        deployment = self.get_object()
        chosen = self.valid_query()
        last = core.last_event_id(self.team)  # before the rows: an event in between is then followed, not missed
        read = core.events_after if "after" in chosen else core.latest_events
        rows = read(user=request.user, team=self.team, subject_type="deployment", subject_id=deployment.pk, **chosen)
        return Response({"events": [core.event_row(row) for row in rows], "last_event_id": last})

    def _answer(self, row: Deployment, code: int = status.HTTP_200_OK) -> Response:
        return Response(deployment_row(row), status=code)

    def _updated(self, updated: services.Updated) -> Response:
        return Response({**deployment_row(updated.deployment), "restarts": updated.restarts})


class InstanceViewSet(DiagnoseActions, InstanceSpeculationAction, TeamViewSet):
    serializer_class = s.InstanceSerializer
    required_action = {**DiagnoseActions.diagnose_actions}
    inputs = {**DiagnoseActions.diagnose_inputs}
    queries = {"log": s.InstanceLogQuerySerializer}

    def rows(self) -> RestrictedQuerySet:
        return selectors.instances()  # type: ignore[no-any-return]

    @extend_schema(operation_id="instances_get", responses=s.InstanceSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(instance_row(self.get_object()))

    @extend_schema(operation_id="instances_log", parameters=[s.InstanceLogQuerySerializer], responses=LogPageSerializer)
    @action(detail=True)
    def log(self, request: Request, pk: str) -> Response:
        after = self.valid_query().get("after")
        page = logs.read(self.get_object(), after)
        return Response(LogPageSerializer(page).data)

    @extend_schema(operation_id="instances_restart", request=None, responses=s.InstanceSerializer)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, pk: str) -> Response:
        return Response(instance_row(services.instance_restart(instance=self.get_object(), actor=self.actor)))


class EngineList(DeclaredView):
    @extend_schema(operation_id="engines_list", responses=s.EngineSerializer(many=True))
    def get(self, request: Request) -> Response:
        return Response([_engine_row(name) for name in registry.engines.names()])


def _engine_row(name: str) -> dict[str, Any]:
    engine = registry.engine(name)
    return {
        "name": name,
        "label": engine.label,
        "capabilities": msgspec.to_builtins(engine.capabilities()),
        "options_schema": engine.options_schema(),
    }
