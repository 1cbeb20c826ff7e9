"""REST of comparisons: POST versions/{id}/compare. Their results are jobs, and listed as such."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.errors import TursiopsError
from tursiops.core.inputs import Input
from tursiops.core.views import TeamViewSet
from tursiops.jobs.serializers import JobSerializer
from tursiops.registry import comparisons
from tursiops.registry.models import Version

MAX_KEY = 100  # characters


class CompareInput(Input):
    reference = serializers.PrimaryKeyRelatedField(
        queryset=Version.objects.none(), help_text="The version to compare with: of any model of the same shape"
    )
    reference_dtype = serializers.CharField(max_length=16, default="float32")
    dtype = serializers.CharField(max_length=16, default="auto", help_text="auto: as the engine would serve it")
    device = serializers.ChoiceField(choices=["auto", "cpu", "cuda"], default="cpu")
    text = serializers.CharField(
        max_length=comparisons.MAX_TEXT,
        default="",
        allow_blank=True,
        help_text="Its first 512 tokens count; empty: the engine's own text",
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Versions of the caller's own team only."""
        fields = super().get_fields()
        view = self.context.get("view")
        if view is not None and not getattr(view, "swagger_fake_view", False):
            visible = Version.objects.restrict(view.request.user, team=view.team).select_related("model__team")
            fields["reference"].queryset = visible  # type: ignore[attr-defined] # PrimaryKeyRelatedField
        return fields


# Of the viewset of versions. A comment, for a docstring would be inherited into the API's reference.
class CompareAction(TeamViewSet):
    compare_inputs = {"compare": CompareInput}

    @extend_schema(
        operation_id="versions_compare",
        request=CompareInput,
        responses={202: JobSerializer},
        parameters=[
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="At most 100 characters")
        ],
    )
    @action(detail=True, methods=["post"])
    def compare(self, request: Request, pk: str) -> Response:
        key = request.headers.get("Idempotency-Key") or None
        if key is not None and len(key) > MAX_KEY:
            raise TursiopsError(f"Idempotency-Key has {len(key)} characters; at most {MAX_KEY} are taken.")
        other = self.get_object()
        job = comparisons.compare_versions(other=other, actor=self.actor, idempotency_key=key, **self.valid_input())
        return Response(JobSerializer(job).data, status=status.HTTP_202_ACCEPTED)
