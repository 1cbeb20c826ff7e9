"""What the API of evaluations gives. Rows are made by `rows`; here they are typed for the schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.evaluations.models import GateKind, RunState, Verdict


class SuiteSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField()
    version = serializers.IntegerField(help_text="Rises with each change of the spec")
    spec = serializers.DictField(help_text="{load, quality, profile}: docs/evaluations.md")
    auto_baseline = serializers.BooleanField(help_text="A run that passed becomes its target's baseline")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SuiteVersionSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    spec = serializers.DictField()
    created_by = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()


class EndpointSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    url = serializers.CharField()
    model = serializers.CharField()
    api = serializers.ChoiceField(choices=["chat", "completions"])
    has_key = serializers.BooleanField(help_text="A key is kept, encrypted; it is never shown")
    created_at = serializers.DateTimeField()


class TargetSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=["deployment", "endpoint"])
    id = serializers.UUIDField(allow_null=True, help_text="null: deleted since")
    name = serializers.CharField()


class FigureSerializer(serializers.Serializer[Any]):
    value = serializers.FloatField()
    low = serializers.FloatField(allow_null=True, help_text="Its own interval; null where it has none")
    high = serializers.FloatField(allow_null=True)
    unit = serializers.CharField()
    better = serializers.ChoiceField(choices=["lower", "higher"])


class RegressionSerializer(serializers.Serializer[Any]):
    """A figure that is worse than its baseline's interval, and by more than 3 %."""

    figure = serializers.CharField()
    unit = serializers.CharField()
    value = serializers.FloatField()
    baseline = serializers.FloatField()
    low = serializers.FloatField(allow_null=True, help_text="The baseline's interval")
    high = serializers.FloatField(allow_null=True)
    change = serializers.FloatField(help_text="Relative to the baseline")
    limit = serializers.FloatField(help_text="The last value that would have been none")


class RunSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    suite = serializers.UUIDField()
    suite_name = serializers.CharField()
    suite_version = serializers.IntegerField()
    parts = serializers.ListField(child=serializers.ChoiceField(choices=["load", "quality"]))
    target = TargetSerializer()
    revision = serializers.IntegerField(allow_null=True, help_text="Of the deployment, when it was measured")
    version = serializers.UUIDField(allow_null=True, help_text="Of the model, that the deployment served")
    version_label = serializers.CharField(allow_blank=True)
    job = serializers.UUIDField(allow_null=True, help_text="null while it waits for another run on its target")
    schedule = serializers.UUIDField(allow_null=True)
    requested_by = serializers.CharField(allow_null=True)
    state = serializers.ChoiceField(choices=RunState.choices)
    verdict = serializers.ChoiceField(choices=Verdict.choices, allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    progress = serializers.FloatField(help_text="0…1")
    progress_text = serializers.CharField(allow_blank=True)
    figures = serializers.DictField(child=FigureSerializer(), help_text="By name, as e2el.p95 or capacity")
    regressions = RegressionSerializer(many=True)
    baseline = serializers.UUIDField(allow_null=True, help_text="The run that it was compared with")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    files_removed_at = serializers.DateTimeField(allow_null=True, help_text="By retention; the figures stay")


class RunFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="As in evaluations/runs/{id}/files/{name}")
    size = serializers.IntegerField(help_text="Bytes")
    sha256 = serializers.CharField()


class RunDetailSerializer(RunSerializer):
    seed = serializers.IntegerField(allow_null=True, help_text="null: drawn fresh, and recorded in the result")
    spec = serializers.DictField(help_text="Of the suite, as it was then")
    results = serializers.DictField(help_text="ResultDoc by part (evaluation/schema.py); grows while it runs")
    files = RunFileSerializer(many=True)


class PointSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)
    value = serializers.FloatField()


class PointPageSerializer(serializers.Serializer[Any]):
    points = PointSerializer(many=True)
    next = serializers.IntegerField(help_text="Ask for `after` this next; then follow the socket's job messages")


class ScheduleTextSerializer(serializers.Serializer[Any]):
    en = serializers.CharField()
    zh = serializers.CharField()


class ScheduleTimesSerializer(serializers.Serializer[Any]):
    text = ScheduleTextSerializer()
    next_times = serializers.ListField(child=serializers.DateTimeField())


class ScheduleSerializer(ScheduleTimesSerializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    suite = serializers.UUIDField()
    suite_name = serializers.CharField()
    target = TargetSerializer()
    cron = serializers.CharField()
    timezone = serializers.CharField()
    enabled = serializers.BooleanField()
    run_missed = serializers.BooleanField(help_text="A time that was missed is run once, late; else it is left out")
    missed = serializers.IntegerField(help_text="Times that passed while nothing could fire")
    reason = serializers.CharField(allow_blank=True, help_text="Why the last time made no run, or was missed")
    fired_for = serializers.DateTimeField(allow_null=True)
    last_run = RunSerializer(allow_null=True)
    owner = serializers.CharField(allow_null=True, help_text="Whose rights its runs have: who saved it last")
    created_at = serializers.DateTimeField()


class BaselineSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    suite = serializers.UUIDField()
    suite_name = serializers.CharField()
    target = TargetSerializer()
    run = serializers.UUIDField()
    figures = serializers.DictField(child=FigureSerializer())
    by_hand = serializers.BooleanField(help_text="Stays until a person sets another")
    updated_at = serializers.DateTimeField()


class LimitSerializer(serializers.Serializer[Any]):
    figure = serializers.CharField()
    min = serializers.FloatField(allow_null=True)
    max = serializers.FloatField(allow_null=True)


class GateSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=GateKind.choices)
    model = serializers.UUIDField(allow_null=True)
    model_name = serializers.CharField(allow_blank=True)
    alias = serializers.CharField(allow_blank=True, help_text="Empty: each alias of the model")
    deployment = serializers.UUIDField(allow_null=True)
    deployment_name = serializers.CharField(allow_blank=True)
    suite = serializers.UUIDField()
    suite_name = serializers.CharField()
    require_pass = serializers.BooleanField()
    forbid_regression = serializers.BooleanField()
    limits = LimitSerializer(many=True)
    max_age_days = serializers.IntegerField()
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class RefusalDetailSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=["no_run", "verdict", "regression", "not_measured", "limit"])
    gate = serializers.UUIDField()
    gate_name = serializers.CharField()
    suite = serializers.UUIDField()
    run = serializers.UUIDField(allow_null=True)
    figure = serializers.CharField(allow_null=True)
    value = serializers.JSONField(allow_null=True, help_text="A number; of `verdict` its name")
    limit = serializers.JSONField(allow_null=True)
    unit = serializers.CharField(required=False)
    baseline = serializers.FloatField(required=False)


class RefusalSerializer(serializers.Serializer[Any]):
    message = serializers.CharField(help_text="One sentence: gate, run, figure, value and limit")
    hint = serializers.CharField(help_text="What to do")
    detail = RefusalDetailSerializer()


class MoveCheckSerializer(serializers.Serializer[Any]):
    allowed = serializers.BooleanField()
    move = serializers.CharField()
    refusals = RefusalSerializer(many=True)


class ResidualSerializer(serializers.Serializer[Any]):
    """evaluation.planner.confirm.Residual: a planned figure beside the measured one."""

    metric = serializers.CharField()
    unit = serializers.CharField()
    low = serializers.FloatField()
    predicted = serializers.FloatField(allow_null=True, help_text="null: the plan had a bound only")
    high = serializers.FloatField()
    measured = serializers.FloatField()
    residual = serializers.FloatField(allow_null=True, help_text="predicted ÷ measured − 1")
    inside = serializers.BooleanField(help_text="The measured value lies in the planned interval")
    basis = serializers.ChoiceField(choices=["calibrated", "transferred", "bound_only", "computed"])
    target = serializers.FloatField(allow_null=True, help_text="Relative; what a calibrated plan promises")
    verdict = serializers.ChoiceField(choices=["met", "missed", "no_target"])


class PlanSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    version = serializers.UUIDField(allow_null=True)
    version_label = serializers.CharField(allow_blank=True)
    request = serializers.DictField(help_text="profile, config, constraints")
    answer = serializers.DictField(help_text="evaluation.planner.answers.Plan")
    run = serializers.UUIDField(allow_null=True, help_text="That puts it to the test")
    choice = serializers.IntegerField(allow_null=True, help_text="Of the answer's choices, that the run measures")
    reason = serializers.CharField(allow_blank=True, help_text="Why there are no residuals")
    residuals = ResidualSerializer(many=True)
    created_at = serializers.DateTimeField()
