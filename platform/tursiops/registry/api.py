"""REST of models, versions, aliases and lineage."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.errors import TursiopsError
from tursiops.core.permissions import RestrictedQuerySet
from tursiops.core.views import TeamViewSet
from tursiops.jobs.serializers import JobSerializer
from tursiops.registry import selectors, services
from tursiops.registry.compare_api import CompareAction
from tursiops.registry.drafts_api import DraftActions
from tursiops.registry.models import Version
from tursiops.registry.serializers import (
    AliasInput,
    ImportInput,
    LineageSerializer,
    ModelDetailSerializer,
    ModelInput,
    ModelSerializer,
    VersionDetailSerializer,
)

MAX_KEY = 100  # characters


@extend_schema_view(list=extend_schema(operation_id="models_list"))
class ModelViewSet(mixins.ListModelMixin, TeamViewSet):
    serializer_class = ModelSerializer
    filterset_fields = ["name", "task"]
    inputs = {"partial_update": ModelInput, "import_": ImportInput, "alias": AliasInput}

    def rows(self) -> RestrictedQuerySet:
        return selectors.models()

    def _detail(self) -> Response:
        return Response(ModelDetailSerializer(self.get_object()).data)

    @extend_schema(operation_id="models_get", responses=ModelDetailSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self._detail()

    @extend_schema(operation_id="models_update", request=ModelInput, responses=ModelDetailSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        model = self.get_object()
        services.update_model(model=model, actor=self.actor, **self.valid_input())
        return self._detail()

    @extend_schema(operation_id="models_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        services.delete_model(model=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="models_import",
        request=ImportInput,
        responses={202: JobSerializer},
        parameters=[
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="At most 100 characters")
        ],
    )
    @action(detail=False, methods=["post"], url_path="import", filterset_fields=[])
    def import_(self, request: Request) -> Response:
        key = request.headers.get("Idempotency-Key") or None
        if key is not None and len(key) > MAX_KEY:
            raise TursiopsError(f"Idempotency-Key has {len(key)} characters; at most {MAX_KEY} are taken.")
        job = services.import_model(team=self.team, actor=self.actor, idempotency_key=key, **self.valid_input())
        return Response(JobSerializer(job).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(operation_id="models_lineage", responses=LineageSerializer)
    @action(detail=True, filterset_fields=[])
    def lineage(self, request: Request, pk: str) -> Response:
        visible = Version.objects.restrict(request.user, team=self.team)
        return Response(selectors.lineage(self.get_object(), visible))

    @extend_schema(operation_id="aliases_set", request=AliasInput, responses=ModelDetailSerializer)
    @action(detail=True, methods=["put"], url_path="aliases/<str:name>")
    def alias(self, request: Request, pk: str, name: str) -> Response:
        model = self.get_object()
        given = self.valid_input()
        version_id, override = given["version"], given["override"]
        services.set_alias(model=model, actor=self.actor, name=name, version_id=version_id, override=override)
        return self._detail()

    @extend_schema(operation_id="aliases_remove", responses={204: None})
    @alias.mapping.delete
    def remove_alias(self, request: Request, pk: str, name: str) -> Response:
        aliases = self.get_object().aliases.select_related("model__team", "version")
        services.remove_alias(alias=get_object_or_404(aliases, name=name), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class VersionViewSet(CompareAction, DraftActions, TeamViewSet):
    serializer_class = VersionDetailSerializer
    inputs = {**CompareAction.compare_inputs}

    def rows(self) -> RestrictedQuerySet:
        return selectors.versions()

    @extend_schema(operation_id="versions_get", responses=VersionDetailSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(VersionDetailSerializer(self.get_object()).data)

    @extend_schema(operation_id="versions_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        services.delete_version(version=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)
