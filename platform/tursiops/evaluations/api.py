"""REST of suites, endpoints, baselines and schedules."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.permissions import RestrictedQuerySet
from tursiops.core.views import TeamViewSet
from tursiops.deployments.refusals import refuse
from tursiops.evaluations import baselines, cron, rows, schedules, selectors, suites, targets
from tursiops.evaluations import inputs as takes
from tursiops.evaluations import serializers as s
from tursiops.evaluations.models import Schedule, Suite


# A list of rows that `row` shows. A comment, for a docstring would be inherited into the API's reference.
class RowViewSet(TeamViewSet):
    def shown(self, item: Any) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__}.shown")  # as `rows` of core.views: each list has its own

    def paged(self) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response([self.shown(item) for item in page or []])

    def answer(self, item: Any, code: int = status.HTTP_200_OK) -> Response:
        return Response(self.shown(item), status=code)


class SuiteViewSet(RowViewSet):
    serializer_class = s.SuiteSerializer
    filterset_fields = ["name"]
    inputs = {"create": takes.SuiteInput, "partial_update": takes.SuiteUpdate}

    def rows(self) -> RestrictedQuerySet:
        return selectors.suites()

    def shown(self, item: Suite) -> dict[str, Any]:
        return rows.suite_row(item)

    @extend_schema(operation_id="suites_list", responses=s.SuiteSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="suites_get", responses=s.SuiteSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self.answer(self.get_object())

    @extend_schema(operation_id="suites_create", request=takes.SuiteInput, responses={201: s.SuiteSerializer})
    def create(self, request: Request) -> Response:
        suite = suites.create_suite(team=self.team, actor=self.actor, **self.valid_input())
        return self.answer(suite, status.HTTP_201_CREATED)

    @extend_schema(operation_id="suites_update", request=takes.SuiteUpdate, responses=s.SuiteSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        suite = self.get_object()
        return self.answer(suites.update_suite(suite=suite, actor=self.actor, **self.valid_input()))

    @extend_schema(operation_id="suites_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        suites.delete_suite(suite=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(operation_id="suites_versions", responses=s.SuiteVersionSerializer(many=True))
    @action(detail=True, pagination_class=None, filterset_fields=[])
    def versions(self, request: Request, pk: str) -> Response:
        return Response([rows.suite_version_row(item) for item in selectors.suite_versions(self.get_object())])


class EndpointViewSet(RowViewSet):
    serializer_class = s.EndpointSerializer
    inputs = {"create": takes.EndpointInput, "partial_update": takes.EndpointUpdate}

    def rows(self) -> RestrictedQuerySet:
        return selectors.endpoints()

    def shown(self, item: Any) -> dict[str, Any]:
        return rows.endpoint_row(item)

    @extend_schema(operation_id="evaluation_endpoints_list", responses=s.EndpointSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="evaluation_endpoints_get", responses=s.EndpointSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self.answer(self.get_object())

    @extend_schema(
        operation_id="evaluation_endpoints_create", request=takes.EndpointInput, responses={201: s.EndpointSerializer}
    )
    def create(self, request: Request) -> Response:
        endpoint = suites.create_endpoint(team=self.team, actor=self.actor, **self.valid_input())
        return self.answer(endpoint, status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="evaluation_endpoints_update", request=takes.EndpointUpdate, responses=s.EndpointSerializer
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        endpoint = self.get_object()
        return self.answer(suites.update_endpoint(endpoint=endpoint, actor=self.actor, **self.valid_input()))

    @extend_schema(operation_id="evaluation_endpoints_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        suites.delete_endpoint(endpoint=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class BaselineViewSet(RowViewSet):
    serializer_class = s.BaselineSerializer
    filterset_fields = ["suite", "deployment", "endpoint"]
    inputs = {"create": takes.BaselineInput}

    def rows(self) -> RestrictedQuerySet:
        return selectors.baselines()

    def shown(self, item: Any) -> dict[str, Any]:
        return rows.baseline_row(item)

    @extend_schema(operation_id="baselines_list", responses=s.BaselineSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="baselines_set", request=takes.BaselineInput, responses={201: s.BaselineSerializer})
    def create(self, request: Request) -> Response:
        """Make a run the baseline of its suite on its target, until a person sets another."""
        baseline = baselines.set_baseline(actor=self.actor, **self.valid_input())
        return self.answer(baseline, status.HTTP_201_CREATED)

    @extend_schema(operation_id="baselines_remove", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        baselines.remove_baseline(baseline=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ScheduleViewSet(RowViewSet):
    serializer_class = s.ScheduleSerializer
    filterset_fields = ["suite", "deployment", "endpoint", "enabled"]
    inputs = {"create": takes.ScheduleInput, "partial_update": takes.ScheduleUpdate}
    queries = {"times": takes.ScheduleTimesQuery}

    def rows(self) -> RestrictedQuerySet:
        return selectors.schedules()

    def shown(self, item: Schedule) -> dict[str, Any]:
        return rows.schedule_row(item, timezone.now())

    @extend_schema(operation_id="schedules_list", responses=s.ScheduleSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="schedules_get", responses=s.ScheduleSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self.answer(self.get_object())

    @extend_schema(operation_id="schedules_create", request=takes.ScheduleInput, responses={201: s.ScheduleSerializer})
    def create(self, request: Request) -> Response:
        given = self.valid_input()
        target = targets.chosen(given.pop("deployment", None), given.pop("endpoint", None))
        schedule = schedules.create_schedule(team=self.team, actor=self.actor, target=target, **given)
        return self.answer(schedule, status.HTTP_201_CREATED)

    @extend_schema(operation_id="schedules_update", request=takes.ScheduleUpdate, responses=s.ScheduleSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        schedule, given = self.get_object(), self.valid_input()
        target = None
        if {"deployment", "endpoint"} & set(given):
            target = targets.chosen(given.pop("deployment", None), given.pop("endpoint", None))
        return self.answer(schedules.update_schedule(schedule=schedule, actor=self.actor, target=target, **given))

    @extend_schema(operation_id="schedules_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        schedules.delete_schedule(schedule=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="schedules_times", parameters=[takes.ScheduleTimesQuery], responses=s.ScheduleTimesSerializer
    )
    @action(detail=False, pagination_class=None, filterset_fields=[])
    def times(self, request: Request) -> Response:
        """What a cron expression means, before it is saved."""
        given = self.valid_query()
        try:
            read = cron.parse(given["cron"], given["timezone"])
        except cron.CronError as error:
            raise refuse(error.field, str(error)) from error
        return Response(rows.times_row(read, timezone.now()))
