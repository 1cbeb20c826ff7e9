"""REST of drafts: versions/{id}/drafts lists those that fit, and records which of them guess for the version."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.core.views import TeamViewSet
from tursiops.registry import drafts
from tursiops.registry.models import Version


class DraftSerializer(serializers.Serializer[Any]):
    version = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment] # a field of that name, not the serializer's own
    model = serializers.UUIDField()
    proposer = serializers.CharField(help_text="What of options.speculation computes with it: draft, eagle3, medusa")
    parameters = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    quantization = serializers.CharField()
    recorded = serializers.BooleanField(help_text="Somebody recorded it as a draft for this version")
    reason = serializers.CharField(help_text="Why it fits")


class DraftsSerializer(serializers.Serializer[Any]):
    drafts = DraftSerializer(many=True)


# Of the viewset of versions. A comment, for a docstring would be inherited into the API's reference.
class DraftActions(TeamViewSet):
    def _visible(self) -> RestrictedQuerySet:
        return Version.objects.restrict(self.request.user, team=self.team).select_related("model__team")

    def _listed(self, target: Version) -> Response:
        return Response(DraftsSerializer({"drafts": drafts.fitting(target, self._visible())}).data)

    @extend_schema(operation_id="versions_drafts", responses=DraftsSerializer)
    @action(detail=True, filterset_fields=[])
    def drafts(self, request: Request, pk: str) -> Response:
        return self._listed(self.get_object())

    @extend_schema(operation_id="versions_drafts_add", request=None, responses=DraftsSerializer)
    @action(detail=True, methods=["put"], url_path="drafts/<uuid:draft>")
    def draft(self, request: Request, pk: str, draft: str) -> Response:
        target = self.get_object()
        drafts.draft_add(draft=get_object_or_404(self._visible(), pk=draft), target=target, actor=self.actor)
        return self._listed(target)

    @extend_schema(operation_id="versions_drafts_remove", responses={204: None})
    @draft.mapping.delete
    def remove_draft(self, request: Request, pk: str, draft: str) -> Response:
        target = self.get_object()
        drafts.draft_remove(draft=get_object_or_404(self._visible(), pk=draft), target=target, actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)
