"""REST of jobs."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.core.views import TeamViewSet
from tursiops.jobs import logs, selectors, services
from tursiops.jobs.serializers import JobSerializer, LogPageSerializer, LogQuerySerializer


@extend_schema_view(
    list=extend_schema(operation_id="jobs_list"),
    retrieve=extend_schema(operation_id="jobs_get"),
)
class JobViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamViewSet):
    serializer_class = JobSerializer
    filterset_fields = ["state", "kind", "subject_id"]
    queries = {"log": LogQuerySerializer}

    def rows(self) -> RestrictedQuerySet:
        return selectors.jobs()

    @extend_schema(operation_id="jobs_log", parameters=[LogQuerySerializer], responses=LogPageSerializer)
    @action(detail=True, filterset_fields=[])
    def log(self, request: Request, pk: str) -> Response:
        after = self.valid_query()["after"]
        return Response(LogPageSerializer(logs.read(self.get_object(), after)).data)

    @extend_schema(operation_id="jobs_cancel", request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        return Response(JobSerializer(services.cancel_job(job=self.get_object(), actor=self.actor)).data)

    @extend_schema(operation_id="jobs_retry", request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        return Response(JobSerializer(services.retry_job(job=self.get_object(), actor=self.actor)).data)
