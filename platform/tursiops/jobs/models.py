"""One row per piece of long work, whatever it does."""

from __future__ import annotations

from django.db import models

from tursiops.core.models import TeamOwned


class JobState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  # failed by verdict: the work ran, a gate was not met
    ERRORED = "errored"
    CANCELLED = "cancelled"


TRANSITIONS: dict[str, set[str]] = {
    JobState.QUEUED: {JobState.RUNNING, JobState.CANCELLED, JobState.ERRORED},
    JobState.RUNNING: {JobState.SUCCEEDED, JobState.REJECTED, JobState.ERRORED, JobState.CANCELLING, JobState.QUEUED},
    JobState.CANCELLING: {JobState.CANCELLED, JobState.SUCCEEDED, JobState.REJECTED, JobState.ERRORED},
    JobState.SUCCEEDED: set(),
    JobState.REJECTED: set(),
    JobState.ERRORED: {JobState.QUEUED},
    JobState.CANCELLED: {JobState.QUEUED},
}
ENDED = {JobState.SUCCEEDED, JobState.REJECTED, JobState.ERRORED, JobState.CANCELLED}


class Job(TeamOwned):
    kind = models.CharField(max_length=50)  # key of the job registry, e.g. "registry.import"
    title = models.CharField(max_length=200)
    spec = models.JSONField(default=dict)
    subject_type = models.CharField(max_length=32, blank=True)
    subject_id = models.UUIDField(null=True, blank=True)
    requested_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    state = models.CharField(max_length=16, choices=JobState.choices, default=JobState.QUEUED, db_index=True)
    reason = models.CharField(max_length=500, blank=True)  # one sentence; hint included
    progress = models.FloatField(default=0.0)  # 0…1
    progress_text = models.CharField(max_length=200, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField(default=3)
    node_name = models.CharField(max_length=100, blank=True)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict)
    error = models.JSONField(default=dict)  # {code, message, hint}
    log_blob = models.ForeignKey("core.Blob", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["team", "idempotency_key"], name="job_once_per_key")]


class JobMetric(models.Model):
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics")
    name = models.CharField(max_length=100)
    step = models.BigIntegerField(null=True)
    value = models.FloatField()
    created_at = models.DateTimeField(auto_now_add=True)
