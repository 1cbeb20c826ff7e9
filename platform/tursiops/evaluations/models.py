"""Suite → Run, what a run is compared with (Baseline), what it can stop (Gate), and when it starts by itself."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from tursiops.core.models import PublicModel, TeamOwned


class Suite(TeamOwned):
    """What is measured and what it must reach. Its spec is versioned: a run keeps the one that it was made with."""

    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    current = models.ForeignKey("SuiteVersion", on_delete=models.SET_NULL, null=True, related_name="+")
    auto_baseline = models.BooleanField(default=True)  # a run that passed becomes its target's baseline

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="suite_name_in_team")]

    def __str__(self) -> str:
        return self.name


class SuiteVersion(PublicModel):
    """Never changed: an edit of the spec makes the next number."""

    team_path = "suite__team"

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    spec = models.JSONField()  # {load, quality, profile}: tursiops.evaluations.specs
    created_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["suite", "number"], name="suite_version_number")]


class ExternalEndpoint(TeamOwned):
    """A service that is not ours, as a target of runs. Its key is encrypted at rest and never shown."""

    name = models.CharField(max_length=100)
    url = models.CharField(max_length=500)  # up to and without /v1
    model = models.CharField(max_length=200)
    api = models.CharField(max_length=16, choices=[("chat", "chat"), ("completions", "completions")], default="chat")
    key_encrypted = models.TextField(blank=True)  # tursiops.secrets, label "evaluation-endpoint"

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="evaluation_endpoint_name_in_team")]

    def __str__(self) -> str:
        return self.name


def _one_target(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=Q(deployment__isnull=False, endpoint__isnull=True)
        | Q(deployment__isnull=True, endpoint__isnull=False),
        name=name,
    )


class Schedule(TeamOwned):
    """When a suite runs by itself. celery-beat fires `task`; what it then does is `schedules.fire`."""

    name = models.CharField(max_length=100)
    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="schedules")
    deployment = models.ForeignKey(
        "deployments.Deployment", on_delete=models.CASCADE, null=True, related_name="evaluation_schedules"
    )
    endpoint = models.ForeignKey(ExternalEndpoint, on_delete=models.CASCADE, null=True, related_name="schedules")
    cron = models.CharField(max_length=100)  # five fields
    timezone = models.CharField(max_length=64, default="UTC")  # of the IANA database
    enabled = models.BooleanField(default=True)
    run_missed = models.BooleanField(default=True)  # late, once; else a missed time is told of and left out
    task = models.OneToOneField(
        "django_celery_beat.PeriodicTask",
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",  # else it would hide PeriodicTask.schedule, which beat reads
    )
    owner = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    fired_for = models.DateTimeField(null=True)  # the newest of its times that was acted on
    missed = models.PositiveIntegerField(default=0)  # times that passed while nothing could fire
    reason = models.CharField(max_length=500, blank=True)  # why the last time made no run

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="evaluation_schedule_name_in_team"),
            _one_target("evaluation_schedule_one_target"),
        ]

    def __str__(self) -> str:
        return self.name


class RunState(models.TextChoices):
    WAITING = "waiting"  # another run is on the same target
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"  # the verdict says how it came out
    INCOMPLETE = "incomplete"  # it ended early; what was measured until then is kept
    CANCELLED = "cancelled"
    ERRORED = "errored"


ON_TARGET = (RunState.QUEUED, RunState.RUNNING)
UNENDED = (RunState.WAITING, *ON_TARGET)


class Verdict(models.TextChoices):
    NONE = ""
    PASS = "pass"
    FAIL = "fail"
    UNDETERMINED = "undetermined"
    INVALID = "invalid"


class Run(TeamOwned):
    """One suite on one target, at one time. Its job does the work; a waiting run has none yet."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="runs")
    suite_version = models.ForeignKey(SuiteVersion, on_delete=models.CASCADE, related_name="+")
    deployment = models.ForeignKey(
        "deployments.Deployment", on_delete=models.SET_NULL, null=True, related_name="evaluation_runs"
    )
    endpoint = models.ForeignKey(ExternalEndpoint, on_delete=models.SET_NULL, null=True, related_name="runs")
    target_kind = models.CharField(max_length=10, default="deployment")  # both outlive the target
    target_name = models.CharField(max_length=100)
    revision_number = models.PositiveIntegerField(null=True)  # of the deployment, when the run began
    version = models.ForeignKey("registry.Version", on_delete=models.SET_NULL, null=True, related_name="+")
    job = models.OneToOneField("jobs.Job", on_delete=models.SET_NULL, null=True, related_name="evaluation_run")
    key = models.ForeignKey("accounts.ApiKey", on_delete=models.SET_NULL, null=True, related_name="+")
    schedule = models.ForeignKey(Schedule, on_delete=models.SET_NULL, null=True, related_name="runs")
    requested_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    idempotency_key = models.CharField(max_length=100, null=True)
    seed = models.BigIntegerField(null=True)  # null: drawn fresh, and recorded in the result
    state = models.CharField(max_length=16, choices=RunState.choices, default=RunState.WAITING, db_index=True)
    verdict = models.CharField(max_length=16, choices=Verdict.choices, default=Verdict.NONE, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    results = models.JSONField(default=dict)  # {"load": ResultDoc, "quality": ResultDoc}: evaluation/schema.py
    figures = models.JSONField(default=dict)  # {name: {value, low, high, unit, better}}: figures.py
    regressions = models.JSONField(default=list)  # figures beyond the baseline's interval and 3 %
    baseline = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="+")  # compared with
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    files_removed_at = models.DateTimeField(null=True)  # by retention; the figures stay

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["team", "idempotency_key"], name="evaluation_run_once_per_key")]
        indexes = [
            models.Index(fields=["team", "suite", "-created_at"]),
            models.Index(fields=["version", "suite", "-created_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.suite.name} on {self.target_name}"


MAX_FILE_NAME = 200  # characters


class RunFile(models.Model):
    """A file of a run's folder, kept in the file store."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="files")
    name = models.CharField(max_length=MAX_FILE_NAME)  # its path in the folder, as load/report.html
    blob = models.ForeignKey("core.Blob", on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="evaluation_file_name_in_run")]


class Baseline(TeamOwned):
    """The run that later runs of a suite on a target are compared with."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="baselines")
    deployment = models.ForeignKey("deployments.Deployment", on_delete=models.CASCADE, null=True, related_name="+")
    endpoint = models.ForeignKey(ExternalEndpoint, on_delete=models.CASCADE, null=True, related_name="+")
    run = models.ForeignKey(Run, on_delete=models.RESTRICT, related_name="baselines")
    by_hand = models.BooleanField(default=False)  # stays until a person sets another

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["suite", "deployment"], name="baseline_of_deployment"),
            models.UniqueConstraint(fields=["suite", "endpoint"], name="baseline_of_endpoint"),
            _one_target("baseline_one_target"),
        ]

    def __str__(self) -> str:
        return f"the baseline of {self.suite.name}"


class GateKind(models.TextChoices):
    ALIAS = "alias"
    ROLLOUT = "rollout"


class Gate(TeamOwned):
    """What a version must have shown before an alias moves to it, or before a deployment rolls it out."""

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=GateKind.choices)
    model = models.ForeignKey("registry.Model", on_delete=models.CASCADE, null=True, related_name="evaluation_gates")
    alias = models.CharField(max_length=50, blank=True)  # of `model`; empty: each of its aliases
    deployment = models.ForeignKey(
        "deployments.Deployment", on_delete=models.CASCADE, null=True, related_name="evaluation_gates"
    )
    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="gates")
    require_pass = models.BooleanField(default=True)
    forbid_regression = models.BooleanField(default=True)
    limits = models.JSONField(default=list)  # [{figure, min?, max?}]
    max_age_days = models.PositiveIntegerField(default=30)  # of the run that is taken as evidence
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="gate_name_in_team"),
            models.CheckConstraint(
                condition=Q(kind="alias", model__isnull=False, deployment__isnull=True)
                | Q(kind="rollout", model__isnull=True, deployment__isnull=False),
                name="gate_one_subject",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Plan(TeamOwned):
    """An answer of the capacity planner, and the run that put it to the test."""

    name = models.CharField(max_length=200)
    version = models.ForeignKey("registry.Version", on_delete=models.SET_NULL, null=True, related_name="+")
    request = models.JSONField()
    answer = models.JSONField()
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="plans")
    choice = models.PositiveIntegerField(null=True)  # of the answer, that the run measures
    residuals = models.JSONField(default=list)  # evaluation.planner.confirm.Residual
    reason = models.CharField(max_length=500, blank=True)  # why there are none
    created_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-created_at"]
