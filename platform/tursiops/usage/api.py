from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.inputs import Input
from tursiops.core.views import DeclaredView
from tursiops.usage import selectors


class UsageQuerySerializer(Input):
    since = serializers.DateTimeField(required=False, help_text="First moment counted, ISO 8601")
    until = serializers.DateTimeField(required=False, help_text="First moment not counted, ISO 8601")
    group = serializers.ChoiceField(choices=selectors.GROUPS, default="day")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "since" in attrs and "until" in attrs and attrs["since"] > attrs["until"]:
            raise serializers.ValidationError({"until": "This is before `since`."})
        return attrs


class UsageTotalsSerializer(serializers.Serializer[Any]):
    requests = serializers.IntegerField()
    errors = serializers.IntegerField(  # type: ignore[assignment] # the contract's name; read only
        help_text="rejected + failed; clients that left are neither"
    )
    rejected = serializers.IntegerField(help_text="The client's mistake: status 4xx")
    failed = serializers.IntegerField(help_text="The service's fault: status 5xx, and streams that broke off")
    prompt_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField(help_text="Part of prompt_tokens that the prefix cache held")
    completion_tokens = serializers.IntegerField()


class UsageRowSerializer(UsageTotalsSerializer):
    group = serializers.CharField(help_text="Id of key, user or deployment, or the day")
    label = serializers.CharField()  # type: ignore[assignment] # the contract's name


class UsageSerializer(serializers.Serializer[Any]):
    rows = UsageRowSerializer(many=True)
    totals = UsageTotalsSerializer()


class UsageView(DeclaredView):
    queries = {"get": UsageQuerySerializer}

    @extend_schema(operation_id="usage_retrieve", parameters=[UsageQuerySerializer], responses=UsageSerializer)
    def get(self, request: Request) -> Response:
        """Requests and tokens of the current team."""
        query = self.valid_query()
        team = request.team  # type: ignore[attr-defined] # set by middleware or key
        return Response(UsageSerializer(selectors.sums(user=request.user, team=team, **query)).data)
