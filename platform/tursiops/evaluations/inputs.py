"""What the API of evaluations takes. Rows that a body names are the caller's team's own, or there are none such."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.core.inputs import Input
from tursiops.deployments.models import Deployment, Desired
from tursiops.evaluations.models import ExternalEndpoint, GateKind, Run, Suite
from tursiops.registry.models import Model, Version


class OwnRows(Input):
    """Narrows each field that names a row to the rows of the caller's team."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        view = self.context.get("view")
        if view is not None and not getattr(view, "swagger_fake_view", False):
            named: list[Any] = [it for it in fields.values() if isinstance(it, serializers.PrimaryKeyRelatedField)]
            for field in named:
                field.queryset = field.queryset.restrict(view.request.user, team=view.team)
        return fields


def _row(queryset: Any, **options: Any) -> Any:
    return serializers.PrimaryKeyRelatedField(queryset=queryset, **options)


def _suite(**options: Any) -> Any:
    return _row(Suite.objects.select_related("team", "current"), **options)


def _deployment(**options: Any) -> Any:
    rows = Deployment.objects.exclude(desired=Desired.DELETED).select_related("team", "current__version__model")
    return _row(rows, **options)


def _endpoint(**options: Any) -> Any:
    return _row(ExternalEndpoint.objects.select_related("team"), **options)


class SuiteInput(Input):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True)
    spec = serializers.DictField(help_text="{load, quality, profile}: docs/evaluations.md")
    auto_baseline = serializers.BooleanField(required=False)


class SuiteUpdate(SuiteInput):
    name = serializers.CharField(max_length=100, required=False)
    spec = serializers.DictField(required=False, help_text="Another one makes the suite's next version")


class EndpointInput(Input):
    name = serializers.CharField(max_length=100)
    url = serializers.CharField(max_length=500, help_text="Up to and without /v1")
    model = serializers.CharField(max_length=200)
    api = serializers.ChoiceField(choices=["chat", "completions"], required=False)
    key = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="Kept encrypted")


class EndpointUpdate(EndpointInput):
    name = serializers.CharField(max_length=100, required=False)
    url = serializers.CharField(max_length=500, required=False, help_text="Another one needs `key` given anew")
    model = serializers.CharField(max_length=200, required=False)


class RunInput(OwnRows):
    suite = _suite()
    deployment = _deployment(required=False, help_text="Or `endpoint`")
    endpoint = _endpoint(required=False)
    seed = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False, help_text="Left out: fresh")


class PointsQuery(Input):
    after = serializers.IntegerField(min_value=0, default=0, help_text="Id of the last point that is known")


class ScheduleInput(OwnRows):
    name = serializers.CharField(max_length=100)
    suite = _suite()
    deployment = _deployment(required=False, help_text="Or `endpoint`")
    endpoint = _endpoint(required=False)
    cron = serializers.CharField(max_length=100, help_text="minute hour day-of-month month day-of-week")
    timezone = serializers.CharField(max_length=64, default="UTC", help_text="As Europe/Berlin")
    enabled = serializers.BooleanField(default=True)
    run_missed = serializers.BooleanField(default=True, help_text="Run a missed time once, late; else leave it out")


class ScheduleUpdate(OwnRows):
    name = serializers.CharField(max_length=100, required=False)
    suite = _suite(required=False)
    deployment = _deployment(required=False)
    endpoint = _endpoint(required=False)
    cron = serializers.CharField(max_length=100, required=False)
    timezone = serializers.CharField(max_length=64, required=False)
    enabled = serializers.BooleanField(required=False)
    run_missed = serializers.BooleanField(required=False)


class ScheduleTimesQuery(Input):
    cron = serializers.CharField(max_length=100)
    timezone = serializers.CharField(max_length=64, default="UTC")


class BaselineInput(OwnRows):
    run = _row(Run.objects.select_related("team", "suite", "deployment", "endpoint"))


class LimitInput(Input):
    figure = serializers.CharField(max_length=100, help_text="As a run's figures name it: e2el.p95, capacity")
    min = serializers.FloatField(required=False, allow_null=True)
    max = serializers.FloatField(required=False, allow_null=True)


class _GateFields(OwnRows):
    require_pass = serializers.BooleanField(required=False)
    forbid_regression = serializers.BooleanField(required=False)
    limits = LimitInput(many=True, required=False)
    max_age_days = serializers.IntegerField(min_value=1, max_value=3650, required=False)
    enabled = serializers.BooleanField(required=False)


class GateInput(_GateFields):
    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(choices=GateKind.choices)
    model = _row(Model.objects.select_related("team"), required=False, help_text="Of kind alias")
    alias = serializers.CharField(max_length=50, required=False, allow_blank=True, help_text="Empty: each alias")
    deployment = _deployment(required=False, help_text="Of kind rollout")
    suite = _suite()


class GateUpdate(_GateFields):
    name = serializers.CharField(max_length=100, required=False)
    alias = serializers.CharField(max_length=50, required=False, allow_blank=True)
    suite = _suite(required=False)


class MoveCheckInput(OwnRows):
    version = _row(Version.objects.select_related("model__team"))
    alias = serializers.CharField(max_length=50, required=False, help_text="Of the version's model")
    deployment = _deployment(required=False, help_text="Instead of an alias: a rollout to it")


class AnswerInput(OwnRows):
    """What the planner is asked."""

    profile = serializers.DictField(help_text="evaluation.profile.BusinessProfile")
    version = _row(Version.objects.select_related("model__team"), required=False, help_text="Or `config`")
    config = serializers.DictField(required=False, help_text="A model's config.json")
    constraints = serializers.DictField(required=False, help_text="evaluation.planner.constraints.Constraints")


class PlanInput(AnswerInput):
    name = serializers.CharField(max_length=200, required=False, allow_blank=True)


class ConfirmInput(OwnRows):
    run = _row(Run.objects.select_related("team", "suite", "deployment", "endpoint"))
    choice = serializers.IntegerField(min_value=0, required=False, help_text="Left out: the recommended one")


class ProfileInput(OwnRows):
    name = serializers.CharField(max_length=100)
    deployment = _deployment(required=False, help_text="Left out: all of the team")
    since = serializers.DateTimeField(required=False, help_text="Left out: 30 days before `until`")
    until = serializers.DateTimeField(required=False)
    slo = serializers.ListField(
        child=serializers.DictField(), required=False, max_length=16, help_text="evaluation.schema.Objective"
    )
