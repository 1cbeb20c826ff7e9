"""REST of diagnosis: instances/{id}/trace, /memory and /memory/snapshot. For members, who operate the deployment."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.inputs import Input
from tursiops.core.permissions import Action
from tursiops.core.views import TeamViewSet
from tursiops.deployments import diagnose


class RecordInput(Input):
    steps = serializers.IntegerField(min_value=1, max_value=diagnose.MAX_STEPS, default=16)
    timeout_s = serializers.FloatField(
        min_value=1, max_value=diagnose.MAX_TIMEOUT_S, default=20, help_text="How long to wait for these steps"
    )


class MemoryPartSerializer(serializers.Serializer[Any]):
    part = serializers.CharField(help_text="weights, kv_cache, tables, swap, graphs, workspace, reserved, other")
    bytes = serializers.IntegerField()
    planned = serializers.IntegerField(allow_null=True, help_text="Bytes that the plan gave it; null: no such part")
    measured = serializers.BooleanField(help_text="False: some of it can only be computed from the model's shape")


class ProcessMemorySerializer(serializers.Serializer[Any]):
    core_resident = serializers.IntegerField()
    api_resident = serializers.IntegerField()
    host_pinned = serializers.IntegerField(help_text="Host memory for KV blocks, beside a GPU")


class GpuMemorySerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    free = serializers.IntegerField()
    allocated = serializers.IntegerField()
    reserved = serializers.IntegerField()
    peak_allocated = serializers.IntegerField()
    graphs = serializers.IntegerField()


class InstanceMemorySerializer(serializers.Serializer[Any]):
    """Bytes of the core process (on a CPU) or of its device."""

    device = serializers.CharField()
    dtype = serializers.CharField()
    kv_cache_dtype = serializers.CharField()
    parts = MemoryPartSerializer(many=True)
    total = serializers.IntegerField()
    planned_total = serializers.IntegerField()
    process = ProcessMemorySerializer()
    gpu = GpuMemorySerializer(allow_null=True)


# Of the viewset of instances. A comment, for a docstring would be inherited into the API's reference.
class DiagnoseActions(TeamViewSet):
    diagnose_inputs = {"trace": RecordInput, "memory_snapshot": RecordInput}
    diagnose_actions = {"trace": Action.CHANGE, "memory": Action.CHANGE, "memory_snapshot": Action.CHANGE}

    @extend_schema(
        operation_id="instances_trace", request=RecordInput, responses={(200, "application/gzip"): OpenApiTypes.BINARY}
    )
    @action(detail=True, methods=["post"])
    def trace(self, request: Request, pk: str) -> HttpResponse:
        instance = self.get_object()
        return _file(diagnose.take_trace(instance=instance, actor=self.actor, **self.valid_input()))

    @extend_schema(operation_id="instances_memory", responses=InstanceMemorySerializer)
    @action(detail=True)
    def memory(self, request: Request, pk: str) -> Response:
        return Response(InstanceMemorySerializer(diagnose.memory_of(self.get_object())).data)

    @extend_schema(
        operation_id="instances_memory_snapshot",
        request=RecordInput,
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    @action(detail=True, methods=["post"], url_path="memory/snapshot")
    def memory_snapshot(self, request: Request, pk: str) -> HttpResponse:
        instance = self.get_object()
        return _file(diagnose.take_snapshot(instance=instance, actor=self.actor, **self.valid_input()))


def _file(recording: diagnose.Recording) -> HttpResponse:
    headers = {
        "Content-Disposition": f'attachment; filename="{recording.name}"',
        "x-tursiops-steps": str(recording.steps),
        "Cache-Control": "no-store",
    }
    return HttpResponse(recording.data, content_type=recording.content_type, headers=headers)
