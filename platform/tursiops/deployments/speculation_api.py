"""REST of speculation: deployments/{id}/speculation and instances/{id}/speculation; docs/speculation.md."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.views import TeamViewSet
from tursiops.deployments import speculation_live


class SourceFiguresSerializer(serializers.Serializer[Any]):
    source = serializers.CharField(help_text="The proposer")  # type: ignore[assignment] # a field of that name
    drafted = serializers.IntegerField()
    accepted = serializers.IntegerField()
    hit_rate = serializers.FloatField(allow_null=True)


class FiguresSerializer(serializers.Serializer[Any]):
    """Rates are null where there was nothing to measure them by."""

    window_s = serializers.FloatField()
    steps = serializers.IntegerField(help_text="Passes")
    verified_steps = serializers.IntegerField(help_text="Of them those that checked guesses")
    rows = serializers.IntegerField(help_text="Requests in passes that checked guesses, counted in each pass")
    drafted_tokens = serializers.IntegerField()
    accepted_tokens = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="Drawn, guessed or not")
    guessed_tokens = serializers.IntegerField(help_text="Of them those that had been guessed")
    acceptance_length = serializers.FloatField(
        allow_null=True, help_text="Tokens that a request gets of a pass that checks guesses: 1 + accepted / rows"
    )
    hit_rate = serializers.FloatField(allow_null=True, help_text="accepted / drafted")
    tokens_per_step = serializers.FloatField(
        allow_null=True, help_text="Tokens that a request gets of a pass, whether it checks guesses or not"
    )
    share_speculated = serializers.FloatField(allow_null=True, help_text="verified_steps / steps")
    saved_s = serializers.FloatField(help_text="Seconds less than plain passes would have taken, by measured costs")
    speedup = serializers.FloatField(allow_null=True, help_text="(1 + hits) / cost ratio, of the newest passes")
    width = serializers.IntegerField(help_text="Guesses for each request that pay just now")
    sources = SourceFiguresSerializer(many=True)


class InstanceSpeculationSerializer(serializers.Serializer[Any]):
    instance = serializers.UUIDField()
    role = serializers.CharField()
    index = serializers.IntegerField()
    state = serializers.CharField()
    mode = serializers.CharField(allow_null=True, help_text="Option speculation as effective; null: it was not told")
    proposers = serializers.ListField(child=serializers.CharField())
    reason = serializers.CharField(help_text="Why there are no figures; empty where there are")
    since_start = FiguresSerializer(allow_null=True)
    recent = FiguresSerializer(allow_null=True, help_text="Of the last minute")


class DeploymentSpeculationSerializer(serializers.Serializer[Any]):
    speculation = serializers.CharField(help_text="As the current revision says: auto, off, or proposers")
    draft_version = serializers.UUIDField(allow_null=True, help_text="The draft that it makes use of")
    draft_label = serializers.CharField(allow_null=True)
    since_start = FiguresSerializer(allow_null=True, help_text="Of all instances, each since it started")
    recent = FiguresSerializer(allow_null=True, help_text="Of the last minute")
    instances = InstanceSpeculationSerializer(many=True)


# Of the viewset of deployments. A comment, for a docstring would be inherited into the API's reference.
class DeploymentSpeculationAction(TeamViewSet):
    @extend_schema(operation_id="deployments_speculation", responses=DeploymentSpeculationSerializer)
    @action(detail=True)
    def speculation(self, request: Request, pk: str) -> Response:
        return Response(DeploymentSpeculationSerializer(speculation_live.of_deployment(self.get_object())).data)


# Of the viewset of instances.
class InstanceSpeculationAction(TeamViewSet):
    @extend_schema(operation_id="instances_speculation", responses=InstanceSpeculationSerializer)
    @action(detail=True)
    def speculation(self, request: Request, pk: str) -> Response:
        return Response(InstanceSpeculationSerializer(speculation_live.of_instance(self.get_object())).data)
