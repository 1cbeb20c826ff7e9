"""REST of the first page and of the plugins that were found."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.accounts.models import User
from tursiops.core import home, plugins
from tursiops.core.permissions import Action
from tursiops.core.views import DeclaredView
from tursiops.deployments.derive import DeploymentState
from tursiops.fleet.serializers import NodeSerializer
from tursiops.jobs.serializers import JobSerializer


class ChecklistStepSerializer(serializers.Serializer[Any]):
    key = serializers.ChoiceField(choices=["model", "deployment", "chat", "key"])
    done = serializers.BooleanField()
    at = serializers.DateTimeField(allow_null=True)


class ProblemSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=[(item.value, item.value) for item in DeploymentState])
    reason = serializers.CharField()


class OverviewDeploymentsSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    ready = serializers.IntegerField()
    problems = ProblemSerializer(many=True)


class OverviewInstancesSerializer(serializers.Serializer[Any]):
    ready = serializers.IntegerField()
    total = serializers.IntegerField()


class OverviewJobsSerializer(serializers.Serializer[Any]):
    running = serializers.IntegerField()
    failed_24h = serializers.IntegerField()
    recent = JobSerializer(many=True)
    failed = JobSerializer(many=True, help_text="The newest of those that failed in 24 h, 5 at most")


class PercentilesSerializer(serializers.Serializer[Any]):
    p50 = serializers.FloatField(allow_null=True)
    p95 = serializers.FloatField(allow_null=True)


class TrafficPointSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    requests = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()


class TrafficSerializer(serializers.Serializer[Any]):
    window_s = serializers.IntegerField()
    requests = serializers.IntegerField()
    errors = serializers.IntegerField(  # type: ignore[assignment] # the contract's name; read only
        help_text="rejected + failed; clients that left are neither"
    )
    rejected = serializers.IntegerField(help_text="The client's mistake: status 4xx")
    failed = serializers.IntegerField(help_text="The service's fault: status 5xx, and streams that broke off")
    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    tokens_per_s = serializers.FloatField(help_text="Completion tokens over the window")
    ttft_ms = PercentilesSerializer(help_text="Time to first token, of the newest 5,000 requests of the window")
    series = TrafficPointSerializer(many=True, help_text="One point a minute")


class OverviewSerializer(serializers.Serializer[Any]):
    deployments = OverviewDeploymentsSerializer()
    instances = OverviewInstancesSerializer()
    nodes = NodeSerializer(many=True)
    jobs = OverviewJobsSerializer()
    traffic = TrafficSerializer()


class PluginSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    origin = serializers.CharField(help_text="Distribution and version that ships it")
    state = serializers.ChoiceField(choices=["active", "failed"])
    version = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment] # a field may be named like an attribute of fields
    contributes = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    settings = serializers.DictField()
    settings_schema = serializers.DictField(help_text="JSON Schema")
    error = serializers.CharField()
    traceback = serializers.CharField()


class ChecklistView(DeclaredView):
    @extend_schema(operation_id="checklist_get", responses=ChecklistStepSerializer(many=True))
    def get(self, request: Request) -> Response:
        assert isinstance(request.user, User)
        team = request.team  # type: ignore[attr-defined] # set by middleware or key
        return Response(ChecklistStepSerializer(home.checklist(user=request.user, team=team), many=True).data)


class OverviewView(DeclaredView):
    @extend_schema(operation_id="overview_get", responses=OverviewSerializer)
    def get(self, request: Request) -> Response:
        assert isinstance(request.user, User)
        team = request.team  # type: ignore[attr-defined] # set by middleware or key
        return Response(OverviewSerializer(home.overview(user=request.user, team=team)).data)


class PluginsView(DeclaredView):
    required_action = Action.ADMIN  # tracebacks show paths

    @extend_schema(operation_id="plugins_list", responses=PluginSerializer(many=True))
    def get(self, request: Request) -> Response:
        return Response(PluginSerializer([asdict(status) for status in plugins.loaded()], many=True).data)
